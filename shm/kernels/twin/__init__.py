"""The plain Python twins of the kernels. Read them first; tests compare both."""
