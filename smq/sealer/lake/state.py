"""How far a topic's table is: one small file per table in the data directory.

    <data.dir>/tables/<namespace>/<topic>/<format>.json

The worker that publishes writes it; the sweep, `smq status`, metrics, doctor and `smq tables` read
it. It decides nothing about rows: if it is lost, the next publishing writes it again. The file's
path says which table it is of: a file with another name in it counts as missing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from smq.model.segments import directory_of
from smq.model.setting import INT64_MAX
from smq.sealer.lake.seen import replace_json, seen_path
from smq.store.manifest import REPLACED_KEEP_MS

DIRECTORY = "tables"
# From a change of the manifest until readers see it (a turn's commit), and what a time line may
# lose when the host is started again (smq.app.supervisor.timeline).
SLACK_MS = 180_000
FORMATS = ("iceberg", "delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a table.

    ends        by partition, the offset up to which the table has it
    files       the number of its files
    raw_records sealed records that it lacks because they are in raw segments
    content     a digest of the content that it was last made equal to
    synced_ms   at this time of the manifest, or later, the table had the manifest's files and no
                other; 0: never. People read it: wall time, as error_ms
    followed_ms the same on the time line, for the sweep, as tidied_ms
    error       why the last attempt failed, in a sentence; "" if it did not
    error_ms    since when attempts fail
    note        foreign changes that were found and mended
    """

    namespace: str
    topic: str
    format: str
    topic_id: str = ""
    location: str = ""
    ends: dict[str, int] = field(default_factory=dict)
    files: int = 0
    raw_records: int = 0
    content: str = ""
    synced_ms: int = 0
    followed_ms: int = 0
    tidied_ms: int = 0
    error: str = ""
    error_ms: int = 0
    note: str = ""


def path_of(data_dir: Path, namespace: str, topic: str, format_: str) -> Path:
    """Where a table's state is."""
    return data_dir / DIRECTORY / namespace / topic / f"{format_}.json"


def read_state(path: Path) -> TableState | None:
    """The state; None if there is none, or it cannot be understood."""
    return _state_in(path, path.parent.parent.name, path.parent.name, path.stem)


def _state_in(path: Path, *names: str) -> TableState | None:
    """The state that a file has of the table with these names: namespace, topic, format."""
    try:
        found = json.loads(path.read_bytes())
        known = {each.name: each.type for each in fields(TableState)}
        state = TableState(**{name: found[name] for name in known.keys() & found.keys()})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    is_of_them = (state.namespace, state.topic, state.format) == names
    is_valid = is_of_them and all(_is(getattr(state, name), known[name]) for name in known)
    return state if is_valid else None


def _is(value: object, kind: object) -> bool:
    """Whether a field of a file has the type of its dataclass; numbers fit into 64 bits."""
    if kind is int:
        return type(value) is int and 0 <= value <= INT64_MAX
    if kind is str:
        return isinstance(value, str)
    return isinstance(value, dict) and all(_is(each, int) for each in value.values())


def write_state(data_dir: Path, state: TableState) -> None:
    """Replace the state. Raises OSError."""
    path = path_of(data_dir, state.namespace, state.topic, state.format)
    replace_json(path, asdict(state))


def forget_state(data_dir: Path, namespace: str, topic: str, format_: str) -> None:
    """Remove the state, if there is one."""
    path = path_of(data_dir, namespace, topic, format_)
    path.unlink(missing_ok=True)
    seen_path(path).unlink(missing_ok=True)
    with suppress(OSError):  # The other format's may be there.
        path.parent.rmdir()


def move_old_states(data_dir: Path) -> None:
    """Move states from where they were before: <namespace>/<topic>.<format>.json."""
    with suppress(OSError):
        for path in sorted((data_dir / DIRECTORY).glob("*/*.json")):
            topic, _, format_ = path.stem.rpartition(".")
            names = path.parent.name, topic, format_
            if path.is_file() and format_ in FORMATS and _state_in(path, *names) is not None:
                place = path_of(data_dir, *names)
                place.parent.mkdir(exist_ok=True)
                path.replace(place)


def states(data_dir: Path) -> Iterator[TableState]:
    """Every table's state."""
    with suppress(OSError):
        for path in sorted((data_dir / DIRECTORY).glob("*/*/*.json")):
            if path.stem in FORMATS and (state := read_state(path)) is not None:
                yield state


def in_step(
    found: Sequence[TableState], topic_ids: Mapping[tuple[str, str], str], now_ms: int
) -> dict[str, int]:
    """By topic directory: files replaced before this time are in no table any more.

    0: unknown, for the table of a deleted topic, one that lags longer than the manifest remembers
    replaced files, or one that followed in the future: its time is of a time line that was lost.
    """
    times: dict[str, int] = {}
    for state in found:
        directory, time_ms = (
            directory_of(state.namespace, state.topic),
            state.followed_ms - SLACK_MS,
        )
        is_of_topic = topic_ids.get((state.namespace, state.topic)) == state.topic_id
        is_known = is_of_topic and state.followed_ms <= now_ms
        if not is_known or time_ms < now_ms - REPLACED_KEEP_MS:
            time_ms = 0
        times[directory] = min(max(time_ms, 0), times.get(directory, time_ms))
    return times
