"""SQL over topics with DuckDB: each topic is one table of sealed and unsealed records.

topics    the rows of a topic for DuckDB, and the segments they come from
session   one query: its topics as views, no access to others; bounds on memory, time and rows
worker    a query in a process of its own, for the HTTP door
"""
