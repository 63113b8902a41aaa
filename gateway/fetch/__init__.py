"""Fetch, answered by Python: rules, answer, session, portions. The API is gateway.apis.fetch."""
