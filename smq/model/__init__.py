"""Names, limits, errors, the catalog and the configuration: shared by all packages."""
