"""The HTTP application: the filer, health, metrics and the console."""
