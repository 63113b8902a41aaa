"""The text itself: sizes, names, and that a source file and its test know each other.

Limits ratchet: they are never raised.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("smq", "shm", "gateway", "spark_jobs", "pyspark_smq", "bench")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

WITHOUT_OWN_TEST = {
    "smq/wire/generated": "written by smq.wire.generate; tests/wire walks all of them",
    "smq/wire/messages": "facts; tests/wire compares each with two other libraries",
    "smq/model/errors.py": "facts, and exceptions without behaviour",
    "smq/client/errors.py": "exceptions without behaviour",
    "smq/client/consuming/source/source.py": "a protocol; its two sources' tests use it",
    "smq/client/producing/channel/channel.py": "a protocol; the tests of its two channels use it",
    "smq/client/producing/delivery/delivery.py": "records without behaviour",
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
    "smq/app/demo": "run by tests/app/test_demo.py as a program",
    "bench": "measures; checked by running it",
}
PROGRAMS = {
    "smq/app/cli/main.py": "the command smq",
    "smq/wire/generate.py": "python -m smq.wire.generate",
    "smq/app/documentation.py": "make docs",
    "smq/app/demo/__main__.py": "make demo",
    "spark_jobs": "started by smq spark, as programs",
    "bench": "make bench",
}


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


def test_every_source_file_is_imported_by_somebody() -> None:
    text = "\n".join((ROOT / path).read_text() for path in EVERY_FILE)
    lonely = []
    for source in source_files():
        module = ".".join(source.with_suffix("").parts)
        package, _, name = module.rpartition(".")
        imported = rf"\b{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b"
        grouped = rf"from {re.escape(package)} import \([^)]*\b{name}\b"
        if not excepted(source, PROGRAMS) and not re.search(f"{imported}|{grouped}", text):
            lonely.append(str(source))
    assert not lonely
