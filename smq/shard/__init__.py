"""A shard's decisions: which partitions it leads, and the results of Produce and Fetch."""
