"""The verbs that read and write records."""
