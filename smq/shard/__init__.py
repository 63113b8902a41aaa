"""What a shard decides: which partitions it leads, what a produce or a fetch gets."""
