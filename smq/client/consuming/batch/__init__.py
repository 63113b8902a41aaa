"""The result of a poll: batches of records, lent or copied."""
