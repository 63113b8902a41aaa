"""The write-ahead log under a frame ring: segments, recovery, checkpoints, partitions."""
