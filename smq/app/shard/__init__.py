"""A shard's process: sockets, sessions, the turn, acks, long polls. smq.shard decides."""
