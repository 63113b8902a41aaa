"""The HTTP door: the filer, and how the broker is, for programs that speak nothing else."""
