"""`format("smq")`: topics for Spark's DataFrames and streams, with the Kafka source's options.

options       what users set
topics        what there is: the manifest, and the broker
ranges        which offsets, and which task reads what
rows          what a task reads
typed         a topic's typed columns, as Spark calls their types
data_source   the batch reader, and what Spark registers
stream        the stream reader
sink          the batch and the stream writer
publishing    a stream's batches, each exactly once
"""
