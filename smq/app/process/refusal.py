"""A refusal: a sentence on stderr that says what to do, and exit code 1.

It is a SystemExit, not a fifth family of failures: the caller need not handle it.
"""

from shm.system import why_wire_only
from smq.model.config import Config


def refuse_wire_only() -> None:
    """Exit on a system where no broker runs."""
    if lack := why_wire_only():
        raise SystemExit(f"smq: {lack}")


def or_refuse(config: Config | list[str]) -> Config:
    """Return the config, or exit with all its problems."""
    if isinstance(config, Config):
        return config
    raise SystemExit("\n".join(f"smq: {problem}" for problem in config))
