"""The pages, one file per subject."""
