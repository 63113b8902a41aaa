"""Kafka's rules for topic names.

Metrics replace '.' by '_', so topics whose names differ only there would share metrics. Kafka, and
SMQ, let only one of them exist.
"""

import re

NAME_CHARACTERS_MAX = 249  # 255, the limit of a file name, less what Kafka appends.

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """Why this is no valid topic name, in Kafka's words; None if it is valid."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than "
            f"the max allowed length {NAME_CHARACTERS_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def is_valid_topic_name(name: str) -> bool:
    """Whether this is a valid topic name."""
    return topic_name_problem(name) is None


def collision_key(name: str) -> str:
    """Topics with the same key cannot both exist."""
    return name.replace(".", "_")
