"""A session's two rings: the shard's end and the program's."""
