"""A refusal: a sentence that says what to do, on stderr, and exit code 1.

It is a SystemExit, because that is what it is to whoever started us: no fifth family of failure.
"""

from smq.model.config import Config


def or_refuse(config: Config | list[str]) -> Config:
    """The config; or end with all that is wrong with it."""
    if isinstance(config, Config):
        return config
    raise SystemExit("\n".join(f"smq: {problem}" for problem in config))
