"""The options of a job that locate a broker's data."""

import argparse
from pathlib import Path
from typing import TypedDict


class TopicArguments(TypedDict):
    """The arguments of `read_topic` that locate a topic."""

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


def places_in(given: argparse.Namespace) -> TopicArguments:
    """The values of these options."""
    return TopicArguments(
        data_dir=given.data_dir, filer_root=given.filer_root, staging=given.staging
    )


def add_stream_places(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job that reads a topic as a stream."""
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument("--filer-root", help="the broker's setting filer.root, if it is elsewhere")
    parser.add_argument("--max-records", type=int, default=1_000_000, help="a batch's [1000000]")
    parser.add_argument("--tail", choices=["live", "sealed"], default="live", help="[live]")


def stream_options(given: argparse.Namespace) -> dict[str, str]:
    """The same for `format("smq")`: from the first record, with headers."""
    options = {
        "dataDir": str(given.data_dir),
        "tail": given.tail,
        "maxOffsetsPerTrigger": str(given.max_records),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    if given.filer_root is not None:
        options["filerRoot"] = given.filer_root
    return options
