"""The sealer's process and its workers. smq.sealer decides."""
