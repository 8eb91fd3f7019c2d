"""Thin entries of dvc.yaml: read a section of params.yaml, call one function of the library, write the manifest."""
