"""The options of a job that say where a broker's data are."""

import argparse
from pathlib import Path
from typing import TypedDict


class Places(TypedDict):
    """What `read_topic` needs to find a topic."""

    data_dir: Path
    filer_root: str | None
    staging: Path | None


def add_places(parser: argparse.ArgumentParser) -> None:
    """Give a job its options."""
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument(
        "--filer-root",
        help="where its files are, if not there: a directory or s3://bucket/prefix, as its "
        "setting filer.root (keys and endpoint: AWS_ACCESS_KEY_ID, …, AWS_ENDPOINT_URL)",
    )
    parser.add_argument(
        "--staging",
        type=Path,
        help="a directory for copies of what is on S3, kept for the next run [a temporary one]",
    )


def places_in(given: argparse.Namespace) -> Places:
    """What was given."""
    return Places(data_dir=given.data_dir, filer_root=given.filer_root, staging=given.staging)
