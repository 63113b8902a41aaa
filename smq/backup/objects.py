"""Copies the filer's objects to and from a snapshot."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from smq.backup.files import Open, link, open_named, opened, pieces
from smq.filer.store import Data, Facts, Store
from smq.model.errors import AlreadyExists, NotFound
from smq.model.references import PREFIX as PAYLOADS_PREFIX
from smq.model.segments import SEGMENTS_PREFIX, is_table_metadata

PREFIXES = PAYLOADS_PREFIX, SEGMENTS_PREFIX
Topics = Collection[tuple[str, str]]  # Namespace and name of each.


class Ways(NamedTuple):
    """How a local source's files are opened and linked: by name, or as HeldFolder does."""

    open: Open = open_named
    link: Callable[[Path, Path], bool] = link


NAMED = Ways()


def belongs(key: str, topics: Topics | None) -> bool:
    """Whether an object belongs to one of these topics; None accepts any object."""
    if topics is None:
        return True
    if not key.startswith(PREFIXES):
        return False
    _, namespace, topic, *_ = [*key.split("/"), "", ""]
    return (namespace, topic) in topics


def bring(
    source: Store,
    target: Store,
    topics: Topics | None,
    done: Callable[[str, int], None],
    ways: Ways = NAMED,
) -> None:
    """Give the target the topics' objects that it does not have; those that go meanwhile are left
    out. Their content never changes.

    Lake tables' metadata stays behind: it names places, and is published again.
    `done` is called with each key that is there, and its bytes. Raises StoreError, OSError.
    """
    for prefix in PREFIXES:
        for facts in source.list(prefix):
            if belongs(facts.key, topics) and not is_table_metadata(facts.key):
                _bring(source, target, facts, done, ways)


def bring_others(
    source: Store, target: Store, done: Callable[[str, int], None], ways: Ways = NAMED
) -> None:
    """Give the target all other objects, which users replace and delete: once, from one store."""
    for facts in source.list():
        if not facts.key.startswith(PREFIXES):
            _bring(source, target, facts, done, ways)


def _bring(
    source: Store, target: Store, facts: Facts, done: Callable[[str, int], None], ways: Ways
) -> None:
    try:
        _copy(source, target, facts.key, ways)
    except (FileNotFoundError, NotFound):
        return
    done(facts.key, facts.length)


def _copy(source: Store, target: Store, key: str, ways: Ways) -> None:
    path, to = source.local_path(key), target.local_path(key)
    if to is not None and to.exists():
        return
    if path is not None and to is not None and ways.link(path, to):
        return
    try:
        with _reading(source, key, ways) as found, target.writing(key) as sink:
            for piece in found:
                sink.write(piece)
    except AlreadyExists:
        return


@contextmanager
def _reading(source: Store, key: str, ways: Ways) -> Iterator[Iterator[Data]]:
    """An object in pieces. A file's is opened once: the name may be another's by then."""
    path = source.local_path(key)
    if path is None:
        with source.reading(key) as reading:
            yield reading.pieces
    else:
        with opened(path, open_source=ways.open) as fd:
            yield pieces(fd)
