"""SQL over topics, with DuckDB: sealed segments and what is not sealed yet, as one table each.

topics    the rows of a topic for DuckDB, and which segments they come from
session   one query: its topics as views, locked to them, bounded in memory, time and rows
worker    a query in a process of its own, for the HTTP door
"""
