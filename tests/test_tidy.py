"""The text itself: sizes, names, and that a source file and its test know each other.

Limits ratchet: they are never raised.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("smq", "shm", "gateway", "spark_jobs", "pyspark_smq", "bench", "examples")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

WITHOUT_OWN_TEST = {
    "smq/wire/generated": "written by smq.wire.generate; tests/wire walks all of them",
    "smq/wire/messages": "facts; tests/wire compares each with two other libraries",
    "smq/model/errors.py": "facts, and exceptions without behaviour",
    "smq/client/errors.py": "exceptions without behaviour",
    "smq/client/consuming/source/source.py": "a protocol; its two sources' tests use it",
    "smq/client/producing/channel/channel.py": "a protocol; the tests of its two channels use it",
    "smq/store/rows.py": "records without behaviour",
    "smq/front/console/desk.py": "a protocol; tests/app/front/desk tests what is behind it",
    "smq/sealer/lake/errors.py": "an exception without behaviour",
    "smq/sealer/ports.py": "protocols; tests/app/sealer/test_ports.py tests those behind them",
    "smq/coordinator/group_events.py": "records without behaviour",
    "smq/coordinator/transactions/orders.py": "records without behaviour",
    "shm/kernels/base/words.py": "numbers; tests/shm/test_layout.py pins them",
    "smq/filer/store.py": "a protocol; smq.testing.store_suite is run on each of its stores",
    "shm/kernels/turn/words.py": "numbers; what they mean is in the tests of turns",
    "shm/kernels/session/words.py": "numbers; tests/shm/test_session.py pins them",
    "shm/kernels/twin/log.py": "plain twins: each kernel's test compares it with its own",
    "shm/kernels/twin/produce.py": "as above",
    "smq/testing": "the test kit: every test that uses it tests it",
    "examples/demo": "run by tests/examples/test_demo.py as a program",
    "bench": "measures; checked by running it",
}
PROGRAMS = {
    "smq/cli/main.py": "the command smq",
    "smq/wire/generate.py": "python -m smq.wire.generate",
    "smq/cli/documentation/pages.py": "make docs",
    "examples/demo/__main__.py": "make demo",
    "spark_jobs": "started by smq spark, as programs",
    "bench": "make bench",
}

# Where wall time is read, and so may decide: what people read, what Kafka defines by it, and files'
# times, which the filer has set. Ages and deadlines are of `now_ms`, an order is of numbers (ADR
# ages-count-on-a-time-line).
WALL_TIME = {
    "smq/app/process/clock.py": "the clock",
    "shm/kernels/base/libc.py": "the clocks' numbers",
    "smq/client/clock.py": "the clock of programs",
    "smq/model/now.py": "both times, as an argument",
    "smq/app/supervisor/timeline.py": "how long the host was down: nothing else can tell",
    # Kafka's definitions.
    "shm/kernels/log/append.py": "log append time; what a record's time may be",
    "shm/kernels/base/words.py": "the word that hands it to the kernels",
    "shm/kernels/record/batches.py": "what a record's time may be",
    "shm/kernels/turn/receive.py": "hands it to the kernels",
    "shm/kernels/twin/produce.py": "the twin of these",
    "smq/shard/produce.py": "hands it to the kernels",
    "smq/shard/validation.py": "what a record's time may be",
    "smq/shard/markers.py": "a marker's time",
    "smq/wire/markers.py": "a marker's time",
    "smq/sealer/plan.py": "retention by records' times",
    "smq/sealer/housekeeping.py": "retention by records' times",
    "smq/sealer/compact_plan.py": "compaction lags by records' times",
    "smq/sealer/compact.py": "compaction lags by records' times",
    "smq/sealer/seal.py": "when records without a time were sealed: their age for retention",
    "smq/app/sealer/worker.py": "hands it to these",
    "smq/client/producing": "records' times",
    "smq/cli/records/produce.py": "records' times",
    "smq/cli/group/work.py": "offsets of so long ago, by records' times",
    "gateway/apis/transactions/list_transactions.py": "one that never began counts as of 1970",
    # Files' times, of the filer's clock. The rules leave room for clocks that differ.
    "shm/kernels/log/handles.py": "whether a payload is young enough to be named",
    "smq/shard/references.py": "whether a payload is young enough to be named",
    "smq/app/shard/payloads.py": "whether a payload is young enough to be named",
    "smq/sealer/payloads.py": "which payloads are so old that no record may name them any more",
    "smq/app/sealer/chores.py": "which payloads and unfinished uploads are old",
    "smq/filer": "files' times, and which unfinished uploads are old",
    "smq/model/references.py": "a payload's id says when its upload began",
    "smq/client/reference.py": "a payload's id says when its upload began",
    "smq/sealer/lake/table.py": "commits' times",
    "smq/sealer/lake/iceberg.py": "snapshots' times, which never go back",
    "smq/sealer/lake/delta.py": "commits' times",
    "smq/sealer/lake/publish.py": "commits' times; when a table was published, for people",
    "smq/app/supervisor/composition.py": "which sources the kernels were compiled from",
    "smq/shard/lent.py": "whether a file is still the one that was named",
    "spark_jobs/source/publishing.py": "whether a file has changed",
    # People read it.
    "gateway/apis/alter_configs.py": "who has changed what, and when",
    "gateway/apis/client_quotas.py": "who has changed what, and when",
    "smq/store/config_changes.py": "who has changed what, and when",
    "gateway/apis/describe_quorum.py": "when a replica caught up: now",
    "smq/coordinator/topics.py": "when a topic was created",
    "smq/app/shard/request_times.py": "when a slow request came",
    "smq/app/supervisor/serve.py": "since when the broker runs",
    "smq/app/supervisor/supervisor.py": "since when a node runs",
    "smq/cli": "for how long the broker runs, how far tables are behind",
    "smq/app/process/lake.py": "how far tables are behind",
    "smq/app/front": "charts, how far tables are behind",
    "smq/front": "charts and lists",
    "smq/backup/take.py": "when a snapshot was taken",
    "smq/load": "when a run was",
    "examples/demo": "how fresh an answer is",
    "smq/testing": "the test kit",
    "spark_jobs/departures.py": "how fresh an answer is",
    "spark_jobs/backfill.py": "the days until today",
}
WALL_TIME_READ = r"wall_ms\b|WALL_MS\b|wall_ns\b|CLOCK_REALTIME|time\.time\b|\.time_ns\b"
WALL_TIME_READ += r"|datetime\.now|st_mtime|modified_ms|last_modified"


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT)


def source_files() -> Iterator[Path]:
    return (path for path in files(*PACKAGES) if path.name != "__init__.py")


def excepted(path: Path, table: dict[str, str]) -> bool:
    return any(str(each) in table for each in (path, *path.parents))


def own_test(source: Path) -> Path:
    parts = source.parts[1:] if source.parts[0] == "smq" else source.parts
    return Path("tests", *parts[:-1], f"test_{source.name}")


GENERATED = Path("smq/wire/generated")
EVERY_FILE = [*files(*PACKAGES, "tests")]
WRITTEN = [path for path in EVERY_FILE if GENERATED not in path.parents]


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path}: {node.name} has {lines} lines"


def test_a_file_has_at_most_500_lines() -> None:
    lines = {str(path): (ROOT / path).read_text().count("\n") for path in WRITTEN}
    assert {path: count for path, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_a_function_has_at_most_60_lines() -> None:
    assert [each for path in WRITTEN for each in long_functions(path)] == []


def test_nothing_is_left_for_later_and_no_type_is_ignored_blindly() -> None:
    # Put together, so that this file may speak of them.
    later = "|".join(["FIX" + "ME", "TO" + "DO", "XX" + "X", r"type: ignore(?!\[)" + r"(?!\()"])
    assert [str(path) for path in WRITTEN if re.search(later, (ROOT / path).read_text())] == []


def test_every_source_file_has_a_test_of_its_own() -> None:
    missing = [
        f"{source}: {own_test(source)}"
        for source in source_files()
        if not excepted(source, WITHOUT_OWN_TEST) and not (ROOT / own_test(source)).exists()
    ]
    assert not missing


def test_every_exception_is_still_needed() -> None:
    present = {str(each) for path in source_files() for each in (path, *path.parents)}
    assert not {*WITHOUT_OWN_TEST, *PROGRAMS} - present


def named_in(text: str) -> Iterator[str]:
    """The dotted names in a text, with what is imported from each."""
    for word in re.findall(r"\w+(?:\.\w+)+", text):
        parts = word.split(".")
        yield from (".".join(parts[:end]) for end in range(2, len(parts) + 1))
    for package, grouped, plain in re.findall(
        r"from ([\w.]+) import (?:\(([^)]*)\)|([^\n]*))", text
    ):
        yield from (f"{package}.{name}" for name in re.findall(r"\w+", grouped or plain))


def test_every_source_file_is_imported_by_somebody() -> None:
    named = {name for path in EVERY_FILE for name in named_in((ROOT / path).read_text())}
    modules = {source: ".".join(source.with_suffix("").parts) for source in source_files()}
    lonely = [
        str(source)
        for source, module in modules.items()
        if module not in named and not excepted(source, PROGRAMS)
    ]
    assert not lonely


def test_wall_time_decides_only_where_that_has_a_reason() -> None:
    """Data faults 1 to 6: orders and ages were taken from a clock that can be set."""
    reading = [
        path
        for path in source_files()
        if path.parts[0] != "bench" and re.search(WALL_TIME_READ, (ROOT / path).read_text())
    ]
    assert [str(path) for path in reading if not excepted(path, WALL_TIME)] == []
    needed = {str(each) for path in reading for each in (path, *path.parents)}
    assert not WALL_TIME.keys() - needed


def test_what_is_called_now_is_not_wall_time() -> None:
    given = r"_ms\s*=\s*(lambda: )?[\w.]*"
    mixed = rf"\bnow{given}wall_ms|\bwall{given}(now|monotonic)_ms"
    texts = {path: (ROOT / path).read_text() for path in source_files()}
    assert [str(path) for path, text in texts.items() if re.search(mixed, text)] == []
