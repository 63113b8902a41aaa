"""The consumer group: joining it, sharing partitions, committing offsets."""
