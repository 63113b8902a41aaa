"""Where a job is told to look."""

import argparse
from pathlib import Path

from spark_jobs.places import add_places, add_stream_places, places_in, stream_options


def test_the_options_are_those_of_read_topic() -> None:
    parser = argparse.ArgumentParser()
    add_places(parser)
    assert places_in(parser.parse_args(["--data-dir", "d"])) == {
        "data_dir": Path("d"),
        "filer_root": None,
        "staging": None,
    }
    all_of_them = ["--data-dir", "d", "--filer-root", "s3://b/x", "--staging", "s"]
    assert places_in(parser.parse_args(all_of_them)) == {
        "data_dir": Path("d"),
        "filer_root": "s3://b/x",
        "staging": Path("s"),
    }


def test_the_options_of_a_stream_are_those_of_the_source() -> None:
    parser = argparse.ArgumentParser()
    add_stream_places(parser)
    whole = {"startingOffsets": "earliest", "includeHeaders": "true", "dataDir": "d"}
    assert stream_options(parser.parse_args(["--data-dir", "d"])) == whole | {
        "tail": "live",
        "maxOffsetsPerTrigger": "1000000",
    }
    given = ["--data-dir", "d", "--filer-root", "s3://b/x", "--tail", "sealed", "--max-records=9"]
    assert stream_options(parser.parse_args(given)) == whole | {
        "tail": "sealed",
        "maxOffsetsPerTrigger": "9",
        "filerRoot": "s3://b/x",
    }
