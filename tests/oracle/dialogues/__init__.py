"""The dialogues: one module an API, all gathered here by `dialogue`."""

from collections.abc import Callable
from typing import NamedTuple

from smq.wire.generated.apis import API_BY_NAME
from tests.oracle.talk import Talk, snake

Script = Callable[[Talk], None]


class Dialogue(NamedTuple):
    """A script, and the versions of its API in which it is played."""

    api: str
    name: str
    versions: tuple[int, ...]
    script: Script


DIALOGUES: dict[str, Dialogue] = {}


def dialogue(
    api: str, *, since: int = 0, until: int | None = None, also: tuple[int, ...] = ()
) -> Callable[[Script], Script]:
    """Register a script, for the lowest, the first flexible, the highest and more versions."""
    facts = API_BY_NAME[api]
    first = max(since, facts.first_version)
    last = facts.last_version if until is None else until
    wanted = {first, max(first, min(facts.flexible_from, last)), last, *also}

    def register(script: Script) -> Script:
        name = f"{snake(api)}-{script.__name__}".replace("_", "-")
        assert name not in DIALOGUES
        DIALOGUES[name] = Dialogue(api, name, tuple(sorted(wanted)), script)
        return script

    return register
