"""Users for tests of logins, made as an administrator makes them."""

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

ITERATIONS = 4096
WEAKER, STRONGER = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def add_users(
    bootstrap: str,
    passwords: Mapping[str, str],
    mechanisms: Iterable[ScramMechanism] = (WEAKER, STRONGER),
) -> None:
    """Give each user credentials, through a listener on which everybody may."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in mechanisms:
        info = ScramCredentialInfo(mechanism, ITERATIONS)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, info, password.encode())
            for user, password in passwords.items()
        ]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result()


def remove_user(bootstrap: str, user: str) -> None:
    """Delete both credentials of a user."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (WEAKER, STRONGER):
        deletion = UserScramCredentialDeletion(user, mechanism)
        for done in admin.alter_user_scram_credentials([deletion]).values():
            done.result()
