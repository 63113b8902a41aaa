"""Who may what: the matrix of APIs, operations and principals, asked of Apache Kafka and of us.

Each API has dialogues, and each is played by every principal of `principals.py`: one right each,
patterns, refusals, mixtures. A request mixes what the principal's rules name (`allowed`, and `new`,
which does not exist) with what they do not (`denied`, and `unknown`, which does not exist).
"""

from collections.abc import Callable
from typing import NamedTuple

from smq.wire.generated.apis import API_BY_NAME
from tests.oracle.rights.cell import Cell
from tests.oracle.talk import snake

Script = Callable[[Cell], None]


class Asked(NamedTuple):
    """A dialogue of the matrix: what is made before it, and what each principal then asks."""

    api: str
    name: str
    versions: tuple[int, ...]
    script: Script
    prepare: Script


ASKED: dict[str, Asked] = {}


def nothing_more(_: Cell) -> None:
    """The topics are enough."""


def asked(
    api: str,
    *,
    since: int = 0,
    until: int | None = None,
    also: tuple[int, ...] = (),
    prepare: Script = nothing_more,
) -> Callable[[Script], Script]:
    """Register a script, for the lowest, the first flexible, the highest and more versions."""
    facts = API_BY_NAME[api]
    first = max(since, facts.first_version)
    last = facts.last_version if until is None else until
    wanted = {first, max(first, min(facts.flexible_from, last)), last, *also}

    def register(script: Script) -> Script:
        name = f"rights-{snake(api)}-{script.__name__}".replace("_", "-")
        assert name not in ASKED
        ASKED[name] = Asked(api, name, tuple(sorted(wanted)), script, prepare)
        return script

    return register
