"""One file per model suite, each with one constant ``SUITE``. Adding a suite is adding a file."""
