"""Names, limits, errors, the catalog and the configuration: what every room talks about."""
