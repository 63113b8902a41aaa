"""Commits that show, taken for durable ones."""

from smq.app.sealer.ports import StoredManifest
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant


def _believe(self: StoredManifest) -> None:
    """What can be read counts as durable."""


MUTANTS = (
    Mutant(
        "readers-believe-what-shows",
        "a shard frees its log for a line whose sync has failed",
        TOPICS | {"unsynced-lines"},
        (Change(StoredManifest, "sync", _believe),),
        seed=28,
    ),
)
