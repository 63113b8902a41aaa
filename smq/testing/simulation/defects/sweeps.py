"""Files that are deleted though their lines are on their way."""

from collections.abc import Iterable, Mapping

from smq.sealer.housekeeping import NO_TABLES, Housekeeping
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant


def _sweep_at_once(
    self: Housekeeping,
    paths: Iterable[str],
    before_ms: int,
    in_step_ms: Mapping[str, int] = NO_TABLES,
) -> list[str]:
    """What the manifest does not name now goes, whatever is on its way to it."""
    swept = self.unnamed(paths, before_ms, in_step_ms)
    for path in swept:
        self.store.delete(path)
    return swept


MUTANTS = (
    Mutant(
        "sweep-condemns-nothing",
        "a file is swept whose line a hanging coordinator commits later",
        TOPICS | {"coordinator-hangs"},
        (Change(Housekeeping, "sweep", _sweep_at_once),),
        seed=149,
    ),
)
