"""A refusal: a sentence on stderr that says what to do, and exit code 1.

It is a SystemExit, not a fifth family of failure: to the caller it means just that.
"""

from shm.system import why_wire_only
from smq.model.config import Config


def refuse_wire_only() -> None:
    """Exit on a system where no broker runs."""
    if lack := why_wire_only():
        raise SystemExit(f"smq: {lack}")


def or_refuse(config: Config | list[str]) -> Config:
    """The config, or an exit that names all its problems."""
    if isinstance(config, Config):
        return config
    raise SystemExit("\n".join(f"smq: {problem}" for problem in config))
