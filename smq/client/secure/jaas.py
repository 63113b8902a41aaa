"""`sasl.jaas.config` of Kafka's clients: a login module, its control flag, and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="x";

Understood are the Plain, Scram and OAuthBearer modules. A value may be quoted; a backslash escapes
in quotes.
"""

import re

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_CONFIG = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*);\s*", re.DOTALL)
_OPTION = re.compile(
    r"""\s+(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"';]+))""",
    re.DOTALL,
)


def login_of(config: str) -> tuple[str, str, str]:
    """Module, user name and password. Raises ValueError with a sentence, which tells no secret."""
    module, options = options_of(config)
    missing = {"username", "password"} - options.keys()
    if missing:
        raise ValueError(f"sasl.jaas.config has no {' and no '.join(sorted(missing))}")
    return module, options["username"], options["password"]


def options_of(config: str) -> tuple[str, dict[str, str]]:
    """Module and options. Raises ValueError as above."""
    found = _CONFIG.fullmatch(config)
    if found is None:
        raise ValueError(
            f'sasl.jaas.config should be like {PLAIN_MODULE} required username="…" password="…";'
        )
    module = found["module"]
    if module not in {PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE}:
        raise ValueError(
            f"sasl.jaas.config names {module}; known are the Plain, Scram and OAuthBearer modules"
        )
    options, end = dict[str, str](), 0
    for option in _OPTION.finditer(found["options"]):
        if option.start() != end:
            break
        quoted = option["quoted"]
        value = option["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        options[option["name"]], end = value, option.end()
    if found["options"][end:].strip():
        raise ValueError("sasl.jaas.config has options that are not name=value")
    return module, options
