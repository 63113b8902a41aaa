"""`format("smq")`: topics for Spark's DataFrames and streams, with the Kafka source's options.

options       the user's options
topics        topics and records, from the manifest and the broker
ranges        which offsets to read, and which task reads what
rows          reads a task's rows
typed         Spark types of a topic's typed columns
reading       the batch reader
stream        the stream reader
sink          the batch and the stream writer
publishing    publishes a stream's batches, each exactly once
data_source   the class that Spark registers
"""
