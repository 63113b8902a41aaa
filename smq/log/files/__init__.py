"""The files of a write-ahead log: segments, look-up tables, checkpoints; the disk under them."""
