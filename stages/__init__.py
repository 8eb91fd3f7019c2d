"""Thin entries of dvc.yaml: read a section of params.yaml, call one function of the library, write the manifest."""

import os

PARENT = os.getppid()  # read before the seconds of heavy imports: who has another parent later has lost the dvc it had
