"""``python -m registry``."""

from registry.cli import main

main()
