"""How fast Spark and SQL read topics."""
