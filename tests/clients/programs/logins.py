"""How Python's clients say who they are: see `LOGIN` of the contract."""

import ssl
from typing import Any

from tests.clients.programs.contract import login

NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}


def python_options() -> dict[str, Any]:
    """The login as kafka-python and aiokafka name it."""
    given = login()
    options: dict[str, Any] = {NAMES[each]: given[each] for each in NAMES if each in given}
    if "ssl.ca.location" in given:
        context = ssl.create_default_context(cafile=given["ssl.ca.location"])
        if "ssl.key.location" in given:
            context.load_cert_chain(given["ssl.certificate.location"], given["ssl.key.location"])
        options["ssl_context"] = context
    return options
