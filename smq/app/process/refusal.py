"""A refusal: a sentence on stderr that says what to do, and exit code 1.

It is a SystemExit, not a fifth family of failure: to the caller it means just that.
"""

from smq.model.config import Config


def or_refuse(config: Config | list[str]) -> Config:
    """The config, or an exit that names all its problems."""
    if isinstance(config, Config):
        return config
    raise SystemExit("\n".join(f"smq: {problem}" for problem in config))
