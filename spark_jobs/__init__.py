"""PySpark over sealed segments: read_topic and jobs made of it."""
