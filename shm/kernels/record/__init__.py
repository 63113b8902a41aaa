"""Record batches: rules, columns, encoding, handles in them."""
