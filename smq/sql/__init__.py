"""SQL over topics with DuckDB: each topic is one table of sealed and unsealed records.

topics        the rows of a topic for DuckDB, and the segments they come from
broker_rows   those of a topic whose files are not read: fetched from the broker
wanted        which offsets a filter may let through
session       one query: its topics as views, no access to others; bounds on memory, time and rows
worker        a query in a process of its own, for the HTTP door
"""
