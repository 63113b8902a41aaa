"""The producer: takes records, batches them, sends them, and reports each one's result.

Rooms, lowest first: `encode` (rows to bytes), `channel` (to a broker) and `delivery` (results),
`batching` (what is sent when, without IO). The files here put threads and waiting around them.
The comment `Uninterruptible` marks statements that Ctrl-C must not separate: see shm.interrupts.
"""
