"""The sealer's process and its workers. The decisions are in smq.sealer."""
