"""Transactions of a producer with a transactional id (KIP-98, KIP-890)."""
