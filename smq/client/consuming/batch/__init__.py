"""What a poll gives: batches of records, lent or copied."""
