"""What SCRAM checks a password with (RFC 5802, KIP-554).

    SaltedPassword  = PBKDF2(password, salt, iterations)
    StoredKey       = H(HMAC(SaltedPassword, "Client Key"))
    ServerKey       = HMAC(SaltedPassword, "Server Key")

A credential holds no password, but who has it can try passwords, and can act as the server.
"""

import hmac
from collections.abc import Mapping
from enum import Enum
from hashlib import new, pbkdf2_hmac
from typing import NamedTuple, Protocol, TypeAlias

from smq.security.salts import SaltForm, form_of


class ScramMechanism(Enum):
    """A mechanism, by Kafka's number."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """As SASL names it: SCRAM-SHA-256."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """As hashlib names its hash: sha256."""
        return f"sha{self.name[-3:]}"

    def hashed(self, data: bytes) -> bytes:
        """H of RFC 5802."""
        return new(self.hash_name, data).digest()

    def keyed(self, key: bytes, data: bytes) -> bytes:
        """HMAC of RFC 5802."""
        return hmac.digest(key, data, self.hash_name)


class ScramCredential(NamedTuple):
    """One user's credential of one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class SaltedPassword(NamedTuple):
    """A password of one mechanism as clients send it to be stored."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted: bytes


class Hashing(NamedTuple):
    """How a password is hashed, which the first message of a server tells."""

    iterations: int
    salt: SaltForm


Profile: TypeAlias = tuple[tuple[ScramMechanism, Hashing], ...]
"""The mechanisms that a user has a credential of, weakest first, and how it is hashed."""

Profiles: TypeAlias = Mapping[Profile, int]
"""Profiles, and how many users have them."""

PROFILES_MAX = 32  # Of which one is chosen for who does not exist: a microsecond each.


class Credentials(Protocol):
    """The credentials of all users."""

    def profiles(self) -> Profiles:
        """The profiles that users have: see `some_of`."""

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """A user's credential; None: there is none."""


class Checked(NamedTuple):
    """What a login is checked with: a user's credential as it was found; None: there was none."""

    credentials: Credentials
    user: str
    mechanism: ScramMechanism
    found: ScramCredential | None

    def is_current(self) -> bool:
        """Whether the user still has it, or still has none."""
        return self.credentials.find(self.user, self.mechanism) == self.found


def profile_of(credentials: Mapping[ScramMechanism, ScramCredential]) -> Profile:
    """The profile of a user with these."""
    found = ((each, credentials[each]) for each in ScramMechanism if each in credentials)
    return tuple((each, Hashing(one.iterations, form_of(one.salt))) for each, one in found)


def some_of(profiles: Profiles) -> Profiles:
    """PROFILES_MAX of these at most, those of most users, the same ones in each process. Their
    users are counted in powers of two, which change seldom."""
    counts = {each: 1 << count.bit_length() - 1 for each, count in profiles.items()}

    def place(profile: Profile) -> tuple[object, ...]:
        return -counts[profile], *((each.value, hashing) for each, hashing in profile)

    return {each: counts[each] for each in sorted(counts, key=place)[:PROFILES_MAX]}


def look_up(credentials: Credentials, user: str, mechanism: ScramMechanism) -> Checked:
    """What a user's login by a mechanism is checked with from now on."""
    return Checked(credentials, user, mechanism, credentials.find(user, mechanism))


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that is salted already, as AlterUserScramCredentials has it."""
    client_key = mechanism.keyed(salted_password, b"Client Key")
    server_key = mechanism.keyed(salted_password, b"Server Key")
    return ScramCredential(salt, mechanism.hashed(client_key), server_key, iterations)


def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Takes milliseconds: Hi of RFC 5802 hashes as often as `iterations`."""
    return pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
