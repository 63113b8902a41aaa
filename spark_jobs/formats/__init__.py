"""Decodes values of a topic to typed columns, in Spark's Python workers.

Spark's own functions for Avro and Protobuf need jars that PySpark lacks.

columns   applies a format to a DataFrame
avro      Avro, with the writer's schema by id if values have Confluent's frame
protobuf  Protobuf, with message types of a descriptor set
framing   Confluent's frame, and schemas by id
"""
