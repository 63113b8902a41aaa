"""The text itself: sizes, names, and that a source file and its test know each other.

Limits ratchet: they are never raised.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("smq", "shm", "gateway", "spark_jobs", "pyspark_smq", "bench", "examples")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
# Class names that occur more than once in the product: each may mean two things to one reader.
REPEATED_CLASS_NAMES_MAX = 56
# A test is named by what acts and what it does. These hide it: "what is wrong is said", "is told".
RIDDLES = r"def (test_(?:what|who|whose)_\w+|test_\w*(?:told|nobody|whoever|whatever|whom)\w*)\("

WITHOUT_OWN_TEST = {
    "smq/wire/generated": "written by smq.wire.generate; tests/wire walks all of them",
    "smq/agent/proto": "written by smq.agent.generate; its test compares it with SeaweedMQ's own",
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
    "examples/seaweedmq": "run by tests/examples/test_seaweedmq.py as a program",
    "bench": "measures; checked by running it",
}
PROGRAMS = {
    "smq/cli/main.py": "the command smq",
    "smq/wire/generate.py": "python -m smq.wire.generate",
    "smq/agent/generate.py": "python -m smq.agent.generate",
    "smq/cli/documentation/pages.py": "make docs",
    "examples/demo/__main__.py": "make demo",
    "examples/seaweedmq/orders.py": "python -m examples.seaweedmq.orders",
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
    "smq/security/audit.py": "what people read in the audit log",
    "smq/app/process/audit_files.py": "likewise",
    "smq/app/coordinator/main.py": "likewise",
    "smq/app/coordinator/server.py": "likewise",
    "smq/cli/unserved.py": "likewise",
    "smq/app/supervisor/timeline.py": "how long the host was down: nothing else can tell",
    # Kafka's definitions.
    "shm/kernels/log/append.py": "log append time; what a record's time may be",
    "shm/kernels/base/words.py": "the word that hands it to the kernels",
    "shm/kernels/record/batches.py": "what a record's time may be",
    "shm/kernels/turn/requests.py": "hands it to the kernels",
    "shm/kernels/twin/produce.py": "the twin of these",
    "smq/shard/produce.py": "hands it to the kernels",
    "smq/shard/validation.py": "what a record's time may be",
    "smq/shard/markers.py": "a marker's time",
    "smq/wire/markers.py": "a marker's time",
    "smq/security/tokens.py": "when a token of an issuer elsewhere begins and ends",
    "smq/app/process/token_keys.py": "hands it to these",
    "smq/client/secure/tokens.py": "when a function of the program says that a token ends",
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
    "smq/app/shard/waiting/payloads.py": "whether a payload is young enough to be named",
    "smq/sealer/payloads.py": "which payloads are so old that no record may name them any more",
    "smq/app/sealer/chores.py": "which payloads and unfinished uploads are old",
    "smq/filer": "files' times, and which unfinished uploads are old",
    "smq/model/references.py": "a payload's id says when its upload began",
    "smq/client/reference.py": "a payload's id says when its upload began",
    "smq/sealer/lake/table.py": "commits' times",
    "smq/sealer/lake/iceberg.py": "snapshots' times, which never go back",
    "smq/sealer/lake/delta.py": "commits' times",
    "smq/sealer/lake/publish.py": "commits' times; when a table was published, for people",
    "shm/private.py": "which versions' kernels nobody uses: a wrong clock costs compiling them",
    "smq/app/supervisor/kernels.py": "which sources the kernels were compiled from",
    "smq/shard/loans.py": "whether a file is still the one that was named",
    "spark_jobs/source/publishing.py": "whether a file has changed",
    # People read it.
    "gateway/apis/alter_configs.py": "who has changed what, and when",
    "gateway/apis/client_quotas.py": "who has changed what, and when",
    "smq/store/config_changes.py": "who has changed what, and when",
    "gateway/apis/describe_quorum.py": "when a replica caught up: now",
    "smq/coordinator/topics.py": "when a topic was created",
    "smq/coordinator/moves.py": "when a move was asked for",
    "smq/app/shard/connections/request_times.py": "when a slow request came",
    "smq/app/supervisor/serve.py": "since when the broker runs",
    "smq/app/agent/appending.py": "what a record's time may be",
    "smq/app/agent/publish_calls.py": "since when a publisher is connected",
    "smq/app/agent/publish_reading.py": "records' times; when a publisher was last seen",
    "smq/app/agent/publish_sessions.py": "since when a publisher is connected",
    "smq/app/agent/subscribing.py": "since when a subscriber is connected",
    "smq/app/agent/subscribe_calls.py": "when a subscriber was seen",
    "smq/app/agent/record_calls.py": "when a subscriber was seen",
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


# Exceptions that are of no family (STYLE, Failure).
OTHER_ERRORS = {
    "smq/model/errors.py": "the families themselves",
    # Outcomes, which the direct caller handles.
    "smq/agent/layouts.py": "no partition has this range: refused by the call",
    "smq/model/offset_types.py": "no record has this offset: refused by the call",
    "smq/agent/sequences.py": "a number is too old to be known: its record is refused",
    "smq/app/agent/refusals.py": "what a caller of gRPC is told",
    "shm/kernels/twin": "where a kernel returns a number",
    "smq/log/reading.py": "the WAL is damaged here: each reader goes around it in its way",
    "smq/shard/references.py": "a question must be answered first",
    "smq/sealer/seal.py": "its partition is gone",
    "smq/front": "Starlette's handlers answer it",
    "smq/load/clients.py": "a load's operation failed, and is counted",
    "bench/clients/programs.py": "a foreign client failed, and is told",
    # Refusals, at the top of a program.
    "smq/backup": "of a snapshot",
    "smq/load": "of a run",
    "smq/sql/session.py": "of a query",
    "smq/tables": "of a read, in `smq sql` and in Spark",
    "smq/cli/records/copying.py": "of a copy",
    # For programs.
    "smq/client": "wrong use, and what a program may try again",
    "smq/testing": "for tests",
}
# Who catches everything and does not raise it again.
CATCHES_ALL = {
    "shm/kernels/base/compiler.py": "half a file of a cache, of which unpickling raises anything",
    "smq/app/process/child.py": "the top of a process",
    "smq/load/worker.py": "the top of a process",
    "smq/backup/loading.py": "the load of a store from elsewhere, which is then refused",
    "smq/app/sealer/worker.py": "a job, which then ends with an error that names it",
    "smq/app/front/webhook.py": "a user's URL, as a callback",
    "smq/client/secure/tokens.py": "a function of the program, which fails a login",
    "smq/client/consuming/group/group_member.py": "a thread of the SDK: poll raises it",
    "smq/client/client.py": "closes the others, then raises it",
    "smq/client/producing/producer.py": "at the end of a block, whose own error counts",
    "smq/client/producing/transactions/transaction.py": "as above",
    "smq/cli/records/import_files.py": "what is after the first failure, which is told",
    "smq/testing": "carries it over to a test's thread",
    "bench": "as above",
}


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT)


def source_files() -> Iterator[Path]:
    return (path for path in files(*PACKAGES) if path.name != "__init__.py")


def excepted(path: Path, table: dict[str, str]) -> bool:
    return any(str(each) in table for each in (path, *path.parents))


def with_parents(paths: Iterable[Path]) -> set[str]:
    return {str(each) for path in paths for each in (path, *path.parents)}


def own_test(source: Path) -> Path:
    parts = source.parts[1:] if source.parts[0] == "smq" else source.parts
    return Path("tests", *parts[:-1], f"test_{source.name}")


GENERATED = {Path("smq/wire/generated"), Path("smq/agent/proto")}
EVERY_FILE = [*files(*PACKAGES, "tests")]
WRITTEN = [path for path in EVERY_FILE if GENERATED.isdisjoint(path.parents)]


def nodes_of(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse((ROOT / path).read_text()))


def long_functions(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path}: {node.name} has {lines} lines"


def test_a_file_has_at_most_500_lines() -> None:
    lines = {str(path): (ROOT / path).read_text().count("\n") for path in WRITTEN}
    assert {path: count for path, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_a_function_has_at_most_60_lines() -> None:
    assert [each for path in WRITTEN for each in long_functions(path)] == []


def test_a_test_name_says_what_acts_and_what_it_does() -> None:
    texts = {path: (ROOT / path).read_text() for path in files("tests")}
    found = {str(path): re.findall(RIDDLES, text) for path, text in texts.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_repeated_class_names_get_fewer() -> None:
    names = Counter(
        node.name
        for path in files("smq", "shm", "gateway", "spark_jobs")
        if path in WRITTEN
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ClassDef)
    )
    repeated = sorted(name for name, count in names.items() if count > 1)
    assert len(repeated) <= REPEATED_CLASS_NAMES_MAX, repeated


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
    assert not {*WITHOUT_OWN_TEST, *PROGRAMS} - with_parents(source_files())


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


def module_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path: Path) -> Iterator[str]:
    """All of it: also what only types need, and what a function imports when it is called."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = {module_of(path): path for path in WRITTEN}
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        named = (name if name in modules else name.rpartition(".")[0] for name in imported_by(path))
        imports[module] = {name for name in named if name in modules} - {module}
    TopologicalSorter(imports).prepare()  # Raises CycleError with the circle.


def naming_exception() -> Iterator[Path]:
    return (path for path in source_files() if "Exception" in (ROOT / path).read_text())


def defines_a_family(node: ast.AST) -> bool:
    bases = map(ast.unparse, node.bases) if isinstance(node, ast.ClassDef) else ()
    return bool({"Exception", "BaseException"}.intersection(bases))


def test_an_exception_is_of_a_family_or_has_a_reason() -> None:
    defining = [path for path in naming_exception() if any(map(defines_a_family, nodes_of(path)))]
    assert [str(path) for path in defining if not excepted(path, OTHER_ERRORS)] == []
    assert not OTHER_ERRORS.keys() - with_parents(defining)


def catches_all(node: ast.AST) -> bool:
    """Whether it catches any exception for good: a cleanup raises it again."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "suppress" and "Exception" in map(ast.unparse, node.args)
    if not isinstance(node, ast.ExceptHandler):
        return False
    caught = "Exception" if node.type is None else ast.unparse(node.type)
    raises = any(isinstance(each, ast.Raise) and each.exc is None for each in ast.walk(node))
    return not raises and bool(re.search(r"\b(Base)?Exception\b", caught))


def test_everything_is_caught_only_where_that_has_a_reason() -> None:
    catching = [path for path in naming_exception() if any(map(catches_all, nodes_of(path)))]
    assert [str(path) for path in catching if not excepted(path, CATCHES_ALL)] == []
    assert not CATCHES_ALL.keys() - with_parents(catching)


def test_wall_time_decides_only_where_that_has_a_reason() -> None:
    """Data faults 1 to 6: orders and ages were taken from a clock that can be set."""
    reading = [
        path
        for path in source_files()
        if path.parts[0] != "bench" and re.search(WALL_TIME_READ, (ROOT / path).read_text())
    ]
    assert [str(path) for path in reading if not excepted(path, WALL_TIME)] == []
    assert not WALL_TIME.keys() - with_parents(reading)


def test_values_named_now_are_not_wall_time() -> None:
    given = r"_ms\s*=\s*(lambda: )?[\w.]*"
    mixed = rf"\bnow{given}wall_ms|\bwall{given}(now|monotonic)_ms"
    texts = {path: (ROOT / path).read_text() for path in source_files()}
    assert [str(path) for path, text in texts.items() if re.search(mixed, text)] == []
