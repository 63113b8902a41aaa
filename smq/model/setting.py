"""One setting: its public name, its type, its bounds, and how a text becomes its value."""

import re
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

KiB, MiB, GiB = 1024, 1024**2, 1024**3
INT64_MAX = 2**63 - 1

ENVIRONMENT_PREFIX = "SMQ_"
CLIENTS_BEGIN = "SMQ_CLIENT_"  # SMQ_CLIENT_SASL_PASSWORD is a client's property sasl.password.
PASSWORD_VARIABLE = "SMQ_USER_PASSWORD"  # noqa: S105  (Its name, of `smq user add`.)
NO_SETTINGS = (CLIENTS_BEGIN, PASSWORD_VARIABLE)
FROM_FILE = "file:"  # The value of a secret setting is the content of this file.
HIDDEN = "(hidden)"


class Update(Enum):
    """When a new value takes effect, and for whom it may be set; in the words of Kafka's docs."""

    READ_ONLY = "read-only"
    """At a start."""
    CLUSTER_WIDE = "cluster-wide"
    """At once, for all nodes together: one process uses it for all of them."""
    PER_BROKER = "per-broker"
    """At once, for all nodes or for one."""


class PathOrUrl(str):
    """A directory, absolute, or `s3://bucket/prefix`."""

    __slots__ = ()


class Setting(NamedTuple):
    """One setting as users see it."""

    name: str
    type: type
    default: str | int | bool | Path
    doc: str
    at_least: int | None = None
    at_most: int | None = None
    one_of: tuple[str, ...] = ()
    default_words: str = ""
    """The documented default where a start finds the value."""
    update: Update = Update.READ_ONLY
    secret: bool = False
    """Its value may hold a password or token: it is shown nowhere, and never comes from argv."""

    def shown(self, value: object) -> object:
        """The value as it may be printed."""
        return HIDDEN if self.secret and value else value

    @property
    def key(self) -> str:
        return self.name.replace(".", "_")

    @property
    def choices(self) -> str:
        """The values of `one_of` in words."""
        return ", ".join(each or "nothing" for each in self.one_of)

    @property
    def option(self) -> str:
        return "--" + self.name.replace(".", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.upper()


def setting(default: Any, doc: str, **rules: Any) -> Any:  # noqa: ANN401  (as dataclasses.field)
    """A field of the configuration."""
    return field(default=default, metadata={"doc": doc, **rules})


_SIZE = re.compile(r"(-?\d[\d_]*)\s*([kmgt]i?b|b)?", re.IGNORECASE)
_UNITS = {"b": 1, "kib": KiB, "mib": MiB, "gib": GiB, "tib": 1024 * GiB}
_UNITS |= {"kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def value_of(setting: Setting, raw: object) -> object:
    """Parse and check a value. Raises ValueError with a sentence."""
    read: dict[type, Callable[[Setting, object], object]] = {
        int: _int_value,
        bool: _bool_value,
        str: _str_value,
        Path: _path_value,
        PathOrUrl: _path_or_url_value,
    }
    return read[setting.type](setting, raw)


def _int_value(setting: Setting, raw: object) -> int:
    matched = None if isinstance(raw, bool) else _SIZE.fullmatch(str(raw).strip())
    if matched is None:
        size = ", also written 64MiB" if "bytes" in setting.name else ""
        raise ValueError(f"{raw!r} is not a whole number{size}")
    value = int(matched[1]) * _UNITS[(matched[2] or "b").lower()]
    if setting.at_least is not None and value < setting.at_least:
        raise ValueError(f"{value} is too small; it must be at least {setting.at_least}")
    at_most = INT64_MAX if setting.at_most is None else setting.at_most
    if value > at_most:
        raise ValueError(f"{value} is too large; it must be at most {at_most}")
    return value


def _bool_value(_setting: Setting, raw: object) -> bool:
    if str(raw).lower() not in _TRUTH:
        raise ValueError(f"{raw!r} is not true or false")
    return _TRUTH[str(raw).lower()]


def _str_value(setting: Setting, raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is not text")  # noqa: TRY004  (one error, shown to the user)
    if setting.one_of and raw not in setting.one_of:
        raise ValueError(f"{raw!r} is not one of {setting.choices}")
    return raw


def _path_value(_setting: Setting, raw: object) -> Path:
    if not isinstance(raw, str | Path) or not str(raw) or "\0" in str(raw):
        raise ValueError(f"{raw!r} is not a path")
    try:
        return Path(raw).expanduser().absolute()
    except RuntimeError:  # ~somebody
        raise ValueError(f"{raw!r} names the home of an unknown user") from None


_S3_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)*/?")


def _path_or_url_value(setting: Setting, raw: object) -> PathOrUrl:
    if not isinstance(raw, str) or "://" not in raw:
        return PathOrUrl(_path_value(setting, raw))
    if not _S3_URL.fullmatch(raw):
        raise ValueError(f"{raw!r} is not a directory or s3://bucket/prefix")
    return PathOrUrl(raw.rstrip("/"))
