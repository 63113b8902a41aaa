"""The consumer: the sources of records, lent batches, and group membership."""
