r"""`sasl.jaas.config` of Kafka's clients: a login module, its control flag, and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="x";

Understood are the Plain, Scram and OAuthBearer modules. Kafka reads the text with Java's
StreamTokenizer (JaasConfig.java), whose rules hold here too:

    word        letters, digits, `_ $ - .`, and what is beyond ASCII; begins with neither a digit
                nor `-` nor `.`
    quoted      in " or '; ends at the end of a line, too. Escapes: \a \b \f \n \r \t \v, one to
                three octal digits; another character is itself
    comment     // or / to the end of the line, /* to */

A value is a word or quoted: a number, or a word with another sign in it, is refused.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_TOKEN = re.compile(
    r"""
    (?P<passed>[\0-\ ]+ | /\*(?:.*?\*/|.*) | //[^\n\r]* | /(?:.[^\n\r]*)?)
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][-.0-9A-Za-z_$\xa0-\U0010ffff]*)
    | (?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]*))
    | (?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n\r])*)(?:(?P=quote)|\\?)
    | (?P<sign>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(?:([0-3][0-7]{2}|[0-7]{1,2})|(.))", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Token(NamedTuple):
    """A word or quoted text; of another token, `text` is None and `sign` may tell it."""

    text: str | None
    sign: str = ""


def login_of(config: str) -> tuple[str, str, str]:
    """Module, user name and password. Raises ValueError with a sentence, which tells no secret."""
    module, options = options_of(config)
    missing = {"username", "password"} - options.keys()
    if missing:
        raise ValueError(f"sasl.jaas.config has no {' and no '.join(sorted(missing))}")
    return module, options["username"], options["password"]


def options_of(config: str) -> tuple[str, dict[str, str]]:
    """Module and options. Raises ValueError as above."""
    tokens = _tokens(config)
    module, flag = next(tokens, _Token(None)).text, next(tokens, _Token(None)).text
    if module is None or flag is None or flag.upper() not in _FLAGS:
        raise ValueError(
            f'sasl.jaas.config should be like {PLAIN_MODULE} required username="…" password="…";'
        )
    if module not in {PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE}:
        raise ValueError(
            f"sasl.jaas.config names {module}; known are the Plain, Scram and OAuthBearer modules"
        )
    options = _options(tokens)
    if next(tokens, None) is not None:
        raise ValueError("sasl.jaas.config has more after its semicolon: it takes one module")
    return module, options


def _options(tokens: Iterator[_Token]) -> dict[str, str]:
    """The options as far as the semicolon. Raises ValueError."""
    options: dict[str, str] = {}
    for name, sign in tokens:
        if sign == ";":
            return options
        equals, value = next(tokens, _Token(None)), next(tokens, _Token(None))
        if equals.sign != "=" or value.text is None:
            raise ValueError(
                "sasl.jaas.config has options that are not name=value; a value that is no plain "
                "word stands in quotes"
            )
        if name is not None:
            options[name] = value.text
    raise ValueError("sasl.jaas.config does not end with a semicolon")


def _tokens(config: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(config):
        if found["quote"]:
            yield _Token(_ESCAPED.sub(_meant, found["quoted"]))
        elif not found["passed"]:
            yield _Token(found["word"], found["sign"] or "")


def _meant(escape: re.Match[str]) -> str:
    octal, character = escape.groups()
    return chr(int(octal, 8)) if octal else _ESCAPES.get(character, character)
