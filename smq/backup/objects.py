"""Copies the filer's objects to and from a snapshot."""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path

from smq.backup.files import link, opened
from smq.filer.store import Facts, Store
from smq.model.errors import AlreadyExists, NotFound
from smq.model.references import PREFIX as PAYLOADS_PREFIX
from smq.model.segments import SEGMENTS_PREFIX, is_table_metadata

PREFIXES = PAYLOADS_PREFIX, SEGMENTS_PREFIX
Topics = Collection[tuple[str, str]]  # Namespace and name of each.
Linking = Callable[[Path, Path], bool]  # link() or link_own().


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
    linked: Linking = link,
) -> None:
    """Give the target the topics' objects that it does not have; those that go meanwhile are left
    out. Their content never changes.

    Lake tables' metadata stays behind: it names places, and is published again.
    `done` is called with each key that is there, and its bytes. Raises StoreError, OSError.
    """
    for prefix in PREFIXES:
        for facts in source.list(prefix):
            if belongs(facts.key, topics) and not is_table_metadata(facts.key):
                _bring(source, target, facts, done, linked)


def bring_others(
    source: Store, target: Store, done: Callable[[str, int], None], linked: Linking = link
) -> None:
    """Give the target all other objects, which users replace and delete: once, from one store."""
    for facts in source.list():
        if not facts.key.startswith(PREFIXES):
            _bring(source, target, facts, done, linked)


def _bring(
    source: Store, target: Store, facts: Facts, done: Callable[[str, int], None], linked: Linking
) -> None:
    try:
        _copy(source, target, facts.key, linked)
    except (FileNotFoundError, NotFound):
        return
    done(facts.key, facts.length)


def _copy(source: Store, target: Store, key: str, linked: Linking) -> None:
    path, to = source.local_path(key), target.local_path(key)
    if to is not None and to.exists():
        return
    if path is not None and to is not None and linked(path, to):
        return
    pages = nullcontext() if path is None else opened(path)  # Those that it had stay.
    try:
        with pages, source.reading(key) as reading, target.writing(key) as sink:
            for piece in reading.pieces:
                sink.write(piece)
    except AlreadyExists:
        return
