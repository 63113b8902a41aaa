"""Programs on one host: shared memory beside its peers."""
