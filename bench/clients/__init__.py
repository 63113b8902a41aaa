"""The C clients of the benchmarks."""
