"""A topic as a table: the files and records that make up its rows, for any engine.

plan       which parts of which sealed segments a read needs
staging    those segments as files, copied from a bucket if an engine needs that
raw_rows   the rows of segments that store batches as they were sent
live       the rows of unsealed records, from the broker
"""
