"""The options of a job that locate a broker's data."""

import argparse
from pathlib import Path
from typing import TypedDict


class Places(TypedDict):
    """What `read_topic` needs to find a topic."""

    data_dir: Path
    filer_root: str | None
    staging: Path | None


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add these options to a job."""
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument(
        "--filer-root",
        help="the broker's filer, if it is elsewhere: a directory or s3://bucket/prefix, like the "
        "setting filer.root (keys and endpoint: AWS_ACCESS_KEY_ID, …, AWS_ENDPOINT_URL)",
    )
    parser.add_argument(
        "--staging",
        type=Path,
        help="a directory for copies of segments on S3, kept for the next run: queries that repeat "
        "then read only what they need [none: executors read the bucket]",
    )


def places_in(given: argparse.Namespace) -> Places:
    """The values of these options."""
    return Places(data_dir=given.data_dir, filer_root=given.filer_root, staging=given.staging)
