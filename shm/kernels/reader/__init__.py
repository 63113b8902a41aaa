"""Kernels of programs that read a log's ring themselves."""
