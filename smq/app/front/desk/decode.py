"""Decodes Arrow, NumPy and Avro values to rows of text in a subprocess: `python -m` this module.

The input is untrusted: if decoding crashes, hangs or exceeds its memory, only the subprocess ends,
and the console reports it. One runs at a time. The subprocess reads a line with the kind, then the
value from stdin and writes {"note", "columns", "rows"} or {"error": sentence}.
"""

import json
import subprocess
import sys
import threading
from io import BytesIO
from itertools import islice
from math import prod
from struct import error as StructError  # noqa: N812  (an exception)
from typing import Any

from shm.confined import confine
from smq.app.process.program import ONE_THREAD, command, environment

SECONDS = 10.0  # Includes imports: Arrow's take a second on a busy machine.
MEMORY_BYTES = 256 << 20  # Beside what the imports take.
ROWS_MAX, COLUMNS_MAX, CELL_MAX = 50, 40, 200
SENTENCE_MAX = 1000  # Letters of a note or an error, which may quote the value.
# Each thread takes memory for itself.
_ONE_THREAD = dict.fromkeys((*ONE_THREAD, "ARROW_NUM_THREADS"), "1")

_one = threading.Lock()


def decoded(kind: str, value: bytes, program: str = "smq.app.front.desk.decode") -> dict[str, Any]:
    """Decode a value to rows, or explain why not. Blocks for twice SECONDS at most."""
    if not _one.acquire(timeout=SECONDS):
        return {"error": "other values are being decoded; try again"}
    try:
        done = subprocess.run(  # noqa: S603  (ours, by name)
            command(program),
            input=b"%s\n%s" % (kind.encode(), value),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment() | _ONE_THREAD,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"its {kind} could not be decoded within {SECONDS:g} s"}
    finally:
        _one.release()
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": f"its {kind} crashed the process that decodes it"}
    return found


def main() -> None:
    """Answer the one question on stdin."""
    import smq.client.payload_formats  # noqa: F401, PLC0415  (before memory is counted)

    kind = sys.stdin.buffer.readline().decode().strip()
    value = sys.stdin.buffer.read()
    confine(MEMORY_BYTES)
    json.dump(answer(kind, value), sys.stdout)


def answer(kind: str, value: bytes) -> dict[str, Any]:
    """Decode a value to rows, or explain why not."""
    try:
        return {"Arrow": _arrow, "NumPy": _numpy, "Avro": _avro}[kind](value)
    except ImportError:
        return {"error": "Avro needs its library: pip install 'smq-broker[decode]'"}
    except (ValueError, MemoryError, RecursionError) as reason:
        sentence = f"it says that it is {kind}, but {str(reason) or type(reason).__name__}"
        return {"error": _cut(sentence, SENTENCE_MAX)}


def _arrow(value: bytes) -> dict[str, Any]:
    from smq.client.payload_formats import read_table  # noqa: PLC0415  (takes its time)

    table = read_table(value)
    table.validate(full=True)
    head = table.slice(0, ROWS_MAX).select(range(min(COLUMNS_MAX, table.num_columns)))
    columns = [_cell(f"{each.name}: {each.type}") for each in head.schema]
    cells = [head.column(number).to_pylist() for number in range(head.num_columns)]
    rows = [[_cell(column[row]) for column in cells] for row in range(head.num_rows)]
    note = f"An Arrow table of {table.num_rows} rows and {table.num_columns} columns."
    return {"note": note, "columns": columns, "rows": rows}


def _numpy(value: bytes) -> dict[str, Any]:
    from smq.client.payload_formats import read_array  # noqa: PLC0415  (as above)

    array = read_array(value)
    dtype = _cut(str(array.dtype), SENTENCE_MAX)
    note = f"A NumPy array of shape {array.shape} and dtype {dtype}."
    rows, *rest = array.shape or (1,)
    flat = array.reshape(rows, prod(rest))
    head = flat[:ROWS_MAX, :COLUMNS_MAX]
    columns = [str(number) for number in range(head.shape[1])]
    return {"note": note, "columns": columns, "rows": [[_cell(x) for x in row] for row in head]}


def _avro(value: bytes) -> dict[str, Any]:
    import fastavro  # noqa: PLC0415  (an extra)

    try:
        reader = fastavro.reader(BytesIO(value))
        found = list(islice(reader, ROWS_MAX))
    except (ValueError, TypeError, LookupError, EOFError, OSError, StructError) as reason:
        raise ValueError(f"it cannot be read: {reason}") from reason
    named = [each for each in found if isinstance(each, dict)]
    if len(named) < len(found) or not found:
        return {"note": "An Avro file.", "columns": ["value"], "rows": [[_cell(x)] for x in found]}
    columns = list(named[0])[:COLUMNS_MAX]
    rows = [[_cell(each.get(name)) for name in columns] for each in named]
    return {
        "note": f"An Avro file; its first {len(rows)} records.",
        "columns": [*map(_cell, columns)],
        "rows": rows,
    }


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return _cut(value[:CELL_MAX].hex(" "), CELL_MAX)
    return _cut(str(value), CELL_MAX)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[:letters] + "…"


if __name__ == "__main__":
    main()
