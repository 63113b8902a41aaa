"""Where a job is told to look."""

import argparse
from pathlib import Path

from spark_jobs.places import add_places, places_in


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
