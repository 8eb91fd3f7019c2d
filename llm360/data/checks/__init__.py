"""What is wrong with data: copies, and benchmarks in it."""
