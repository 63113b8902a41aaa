"""A topic as a table: which files and which records make up its rows, for any engine to read.

plan       which parts of which sealed segments a read needs
staging    those segments as files, copied from a bucket where an engine needs that
raw_rows   the rows of segments that keep batches as they were sent
live       the rows of records that are not sealed yet, from the broker
"""
