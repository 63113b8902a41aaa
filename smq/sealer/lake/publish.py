"""Publishes a topic: its table gets exactly the sealed Parquet files of the manifest.

    manifest, table  →  commits of the differences  →  the table's state file

Manifest and table are the only inputs of a run. A kill, or a lost answer of the catalog, leaves a
table some commits behind, and the next run makes the missing ones. A commit that was computed from
an older state of the table fails.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from smq.filer.location import Location
from smq.filer.s3_uploads import Access
from smq.filer.store import Store
from smq.model.errors import StoreError
from smq.model.now import Now
from smq.sealer.lake.catalog import CatalogSettings
from smq.sealer.lake.delta import DeltaTable
from smq.sealer.lake.errors import LakeError
from smq.sealer.lake.footers import footer
from smq.sealer.lake.iceberg import IcebergTable
from smq.sealer.lake.plan import Change, Lines, changes, ends, raw_records
from smq.sealer.lake.seen import read_seen, seen_path, write_seen
from smq.sealer.lake.state import TableState, forget_state, path_of, read_state, write_state
from smq.sealer.lake.table import (
    OFFSETS,
    RAW_RECORDS,
    Held,
    LakeCommit,
    LakeTable,
    TableName,
    columns_of,
)
from smq.sealer.ports import ManifestPort
from smq.sealer.typed import typed_columns
from smq.store.manifest import walk
from smq.wire.internal.messages import PublishTable

TIDY_SHARE = 4  # Metadata is tidied this many times within the time that snapshots are kept.


class Publishing(NamedTuple):
    """The job, and the ports it uses. `now` reads both clocks."""

    store: Store
    manifest: ManifestPort
    location: Location
    catalog: CatalogSettings
    data_dir: Path
    now: Callable[[], Now]

    def publish(self, job: PublishTable) -> bool:
        """Have the table follow the manifest; whether more commits remain.

        Raises StoreError; the table's state records the reason too.
        """
        began = self.now()
        state = self._state(job)
        try:
            return self._publish(job, state, began)
        except StoreError as reason:
            error = self.catalog.hidden(str(reason))
            self._note(replace(state, error=error, error_ms=state.error_ms or began.wall_ms))
            raise

    def withdraw(self, namespace: str, topic: str, format_: str) -> None:
        """Drop the table of a deleted topic, if it was made here. Raises StoreError."""
        table = self.table(TableName(namespace, topic), format_)
        held = table.read()
        if held is None or held.topic_id:
            table.drop()
        forget_state(self.data_dir, namespace, topic, format_)

    def table(self, name: TableName, format_: str) -> LakeTable:
        """The table of a topic."""
        base, access = self.location.root.rstrip("/"), self.location.access(os.environ)
        if format_ == "delta":
            options = _delta_options(access) if self.location.is_s3 else {}
            return DeltaTable(name, self.store, base, options)
        options = _iceberg_options(access) if self.location.is_s3 else {}
        base = base if self.location.is_s3 else f"file://{base}"
        return IcebergTable(name, self.store, base, self.catalog, options)

    def _publish(self, job: PublishTable, state: TableState, began: Now) -> bool:
        lines = self._lines(job)
        content = _digest(job, lines)
        if not job.check and content == state.content and not state.error:
            self._note(_synced(state, began))
            return False
        table = self.table(TableName(job.namespace, job.topic), job.format)
        held = table.read()
        note = _what_happened(held, state, job)
        held = self._prepared(table, held, job)
        planned, has_more = changes(lines, held.files)
        self.manifest.sync()  # The table outlives a power loss.
        now = set(held.files)
        for change in planned:
            table.commit(self._commit(change, lines))
            now = now.difference(change.removed) | {new.segment.path for new in change.added}
        state = replace(
            state,
            topic_id=job.topic_id,
            location=table.where(),
            ends={str(each): end for each, end in ends(lines, now).items()},
            files=len(now),
            raw_records=raw_records(lines),
            content="" if has_more else content,
            error="",
            error_ms=0,
            note=note or state.note,
        )
        state = state if has_more else _synced(state, began)
        if not 0 <= began.monotonic_ms - state.tidied_ms < job.keep_ms // TIDY_SHARE:
            self._tidy(table, state, began.monotonic_ms, job.keep_ms)
            state = replace(state, tidied_ms=began.monotonic_ms)
        self._note(state)
        return has_more

    def _tidy(self, table: LakeTable, state: TableState, now_ms: int, keep_ms: int) -> None:
        path = seen_path(path_of(self.data_dir, state.namespace, state.topic, state.format))
        seen = read_seen(path)
        found = table.tidy(seen, now_ms, keep_ms)
        if found != seen:
            with self._noting(state):
                write_seen(path, found)

    def _state(self, job: PublishTable) -> TableState:
        """The state that is this topic's: a failure is told of a topic only if it names it."""
        found = read_state(path_of(self.data_dir, job.namespace, job.topic, job.format))
        if found is None or found.topic_id != job.topic_id:
            return TableState(
                namespace=job.namespace,
                topic=job.topic,
                format=job.format,
                topic_id=job.topic_id,
            )
        return found

    def _note(self, state: TableState) -> None:
        with self._noting(state):
            write_state(self.data_dir, state)

    @contextmanager
    def _noting(self, state: TableState) -> Iterator[None]:
        try:
            yield
        except OSError as reason:
            where = path_of(self.data_dir, state.namespace, state.topic, state.format)
            raise StoreError(str(where), f"it cannot be written: {reason}") from reason

    def _lines(self, job: PublishTable) -> Lines:
        return {
            partition: list(walk(self.manifest, number, self.manifest.log_start(number)))
            for partition, number in enumerate(job.numbers)
        }

    def _prepared(self, table: LakeTable, held: Held | None, job: PublishTable) -> Held:
        """The table, ready to take this topic's files. Raises LakeError."""
        columns = columns_of(typed_columns(job.schema))
        if held is not None:
            _check_owner(held, job)
        if held is not None and held.topic_id != job.topic_id:
            table.drop()  # It is a deleted topic's.
            held = None
        if held is None:
            table.create(columns, job.topic_id)
            return Held(job.topic_id, {}, [], {each.name: each.type for each in columns})
        if held.is_dated:
            table.renew()
        missing = [each for each in columns if each.name not in held.columns]
        for each in typed_columns(job.schema) or []:
            if held.columns.get(each.name, each.type) != each.type:
                raise LakeError(
                    f"{job.namespace}.{job.topic}",
                    f"its column {each.name} is {held.columns[each.name]}, and the topic's schema "
                    f"says {each.type}; choose another name for it",
                )
        if missing:
            table.add_columns(missing)
        return held

    def _commit(self, change: Change, lines: Lines) -> LakeCommit:
        footers = {new.segment.path: footer(self.store, new.segment) for new in change.added}
        properties = {
            OFFSETS: json.dumps({str(each): end for each, end in sorted(change.ends.items())}),
            RAW_RECORDS: str(raw_records(lines)),
        }
        return LakeCommit(change, footers, properties, self.now().wall_ms)


def _check_owner(held: Held, job: PublishTable) -> None:
    """Raise LakeError if others write to the table, or it is not of this broker."""
    if held.foreign and held.topic_id == job.topic_id:
        raise LakeError(
            f"{job.namespace}.{job.topic}",
            f"somebody else writes to the {job.format} table: it has {len(held.foreign)} files "
            f"that SMQ did not write ({held.foreign[0]}). Drop the table, and it is published "
            "again; the topic has lost nothing",
        )
    if held.topic_id != job.topic_id and (held.foreign or not held.topic_id):
        raise LakeError(
            f"{job.namespace}.{job.topic}",
            f"there is a {job.format} table of this name that this broker did not make. "
            "Rename or drop it, and the topic is published; the topic has lost nothing",
        )


def _what_happened(held: Held | None, state: TableState, job: PublishTable) -> str:
    """Describe changes that others made to the table."""
    if state.synced_ms == 0:
        return ""
    if held is None:
        return "the table was dropped by somebody else, and published again"
    if held.topic_id == job.topic_id and len(held.files) < state.files:
        return "somebody else removed files from the table; they were added again"
    return ""


def _digest(job: PublishTable, lines: Lines) -> str:
    """A digest of the table's wanted content."""
    digest = hashlib.sha256(f"{job.topic_id} {job.schema}".encode())
    for partition, segments in sorted(lines.items()):
        digest.update(f"\n{partition}".encode())
        for segment in segments:
            digest.update(segment.path.encode())
    return digest.hexdigest()


def _iceberg_options(access: Access) -> dict[str, str]:
    names = {
        "endpoint": "s3.endpoint",
        "region": "s3.region",
        "access_key_id": "s3.access-key-id",
        "secret_access_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
    }
    found = {names[key]: str(value) for key, value in access.items() if key in names}
    return {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", **found}


def _delta_options(access: Access) -> dict[str, str]:
    names = {
        "endpoint": "AWS_ENDPOINT_URL",
        "region": "AWS_REGION",
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "session_token": "AWS_SESSION_TOKEN",
    }
    found = {names[key]: str(value) for key, value in access.items() if key in names}
    return {"AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag", **found}


def _synced(state: TableState, began: Now) -> TableState:
    return replace(state, synced_ms=began.wall_ms, followed_ms=began.monotonic_ms)
