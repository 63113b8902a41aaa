"""Benchmarks: ratios against peers and physical limits, measured in one run."""
