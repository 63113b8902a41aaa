"""`import smq` costs nothing and offers the SDK's names; the README's lines run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import smq
from smq.client import sdk
from smq.testing import broker

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("numpy", "numba", "pyarrow", "smq.client")


def test_importing_smq_imports_nothing_heavy() -> None:
    code = f"import sys, smq; print([each for each in {HEAVY} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_interrupt_while_the_sdk_is_imported_is_raised_when_it_is_there() -> None:
    code = """
import builtins, signal
import smq
signal.signal(signal.SIGINT, signal.default_int_handler)
builtin = __import__
def interrupting(name, *rest):
    if name == "numpy":
        builtins.__import__ = builtin
        signal.raise_signal(signal.SIGINT)
    return builtin(name, *rest)
builtins.__import__ = interrupting
try:
    smq.connect
except KeyboardInterrupt:
    import sys
    print("numpy.linalg" in sys.modules, smq.connect.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True connect"


def test_the_names_of_the_sdk_are_those_of_smq() -> None:
    names = [name for name in vars(sdk) if not name.startswith("_")]
    assert {"connect", "connect_async", "Client", "Producer", "Consumer"} <= set(names)
    for name in names:
        assert getattr(smq, name) is getattr(sdk, name)
    assert set(names) <= set(dir(smq))


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'smq' has no attribute 'conect'"):
        smq.conect  # noqa: B018
    with pytest.raises(ImportError):
        exec("from smq import nothing")


PAGES = ("README.md", "docs/sdk.md")


def blocks() -> list[tuple[str, str]]:
    """The lines of the SDK in our pages that need a broker alone, and where they stand."""
    found = [
        (page, code)
        for page in PAGES
        for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    ]
    with_a_broker = [each for each in found if 'smq.connect("127.0.0.1:9092")' in each[1]]
    return [each for each in with_a_broker if "send_reference" not in each[1]]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(blocks())))
def test_the_lines_of_the_docs_run_as_they_stand(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page, code = blocks()[number]
    with broker() as running:
        exec(compile(code.replace("127.0.0.1:9092", running.bootstrap), page, "exec"), {})
    assert "shared memory" in capsys.readouterr().out


def test_the_readme_begins_as_the_page_of_the_sdk_does() -> None:
    first = dict(reversed(blocks()))
    assert first["README.md"] == first["docs/sdk.md"]
