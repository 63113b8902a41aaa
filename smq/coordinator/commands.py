"""What our own processes ask of the coordinator: frames of KIND_COMMAND (smq.wire.internal).

    {"do": "list_segments", "number": n, "from_offset": o}
        -> {"ok": {"log_start": offset, "segments": [segment, …]}}
           those with records at or after `from_offset` (0 if left out), in order, a page of them:
           after a full page the next begins at the end offset of the last

    {"do": "commit_segments", "segments": [segment, …], "payloads": [[id, …], …]}
        -> {"ok": [segment, …]}
           what the manifest has in their place, all or none. Again is harmless: the segment that is
           there already comes back, and the file of the other is one too many. Those of deleted
           topics are left out. An overlap is an error. `payloads` (none if left out) are the ids of
           those that each segment's records name.

    {"do": "delete_segments", "number": n, "base_offsets": [o, …]}  -> {"ok": true}
    {"do": "set_log_start", "number": n, "offset": o}               -> {"ok": true}
           never goes back

    {"do": "ensure_topics", "names": [name, …]}
        -> {"ok": {name: null or why not, …}}

`n` is the partition's number; a segment has the fields of `smq.store.rows.Segment`. What cannot be
done is answered {"error": sentence}. An answer goes out after its change is durable.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from smq.coordinator.coordinator import Coordinator
from smq.coordinator.inputs import Now
from smq.model.errors import PreconditionFailed
from smq.store.rows import Segment

Command = dict[str, Any]

LIST_SEGMENTS_MAX = 500  # Of one answer: some milliseconds of the loop.


def execute(command: Command, coordinator: Coordinator, now: Now) -> Command:
    """Do a command; returns its answer."""
    do = _COMMANDS.get(command.get("do", ""))
    if do is None:
        return {"error": f"there is no command {command.get('do')!r}"}
    try:
        return {"ok": do(command, coordinator, now)}
    except (KeyError, TypeError) as reason:
        return {"error": f"{command['do']} is malformed: {reason!r}"}
    except PreconditionFailed as reason:
        return {"error": str(reason)}


def _list_segments(command: Command, coordinator: Coordinator, _now: Now) -> Command:
    manifest, number = coordinator.store.manifest, command["number"]
    segments = manifest.segments(number, command.get("from_offset", 0), count_max=LIST_SEGMENTS_MAX)
    return {
        "log_start": manifest.log_start(number),
        "segments": [asdict(segment) for segment in segments],
    }


def _commit_segments(command: Command, coordinator: Coordinator, _now: Now) -> list[Command]:
    segments = [Segment(**fields) for fields in command["segments"]]
    committed = coordinator.store.manifest.commit_segments(segments, command.get("payloads", ()))
    return [asdict(each) for each in committed]


def _delete_segments(command: Command, coordinator: Coordinator, _now: Now) -> bool:
    coordinator.store.manifest.delete_segments(command["number"], command["base_offsets"])
    return True


def _set_log_start(command: Command, coordinator: Coordinator, _now: Now) -> bool:
    coordinator.store.manifest.set_log_start(command["number"], command["offset"])
    return True


def _ensure_topics(command: Command, coordinator: Coordinator, now: Now) -> Command:
    return coordinator.topics.ensure(command["names"], now)


_COMMANDS: Mapping[str, Callable[[Command, Coordinator, Now], Any]] = {
    "list_segments": _list_segments,
    "commit_segments": _commit_segments,
    "delete_segments": _delete_segments,
    "set_log_start": _set_log_start,
    "ensure_topics": _ensure_topics,
}
