"""Users for tests of logins."""

from collections import Counter

from smq.security.credentials import (
    Profiles,
    ScramCredential,
    ScramMechanism,
    credential_of,
    profile_of,
    salted,
    some_of,
)


class UsersInMemory:
    """Credentials of both mechanisms for each user; implements Credentials."""

    def __init__(self, passwords: dict[str, str]) -> None:
        self.found: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        for user, password in passwords.items():
            for mechanism in ScramMechanism:
                self.add(user, password, mechanism)

    def add(
        self, user: str, password: str, mechanism: ScramMechanism, iterations: int = 4096
    ) -> None:
        """Give a user a credential of one mechanism."""
        salt = f"salt of {user}".encode()
        key = salted(mechanism, password, salt, iterations)
        self.found[user, mechanism] = credential_of(mechanism, key, salt, iterations)

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """See Credentials."""
        return self.found.get((user, mechanism))

    def profiles(self) -> Profiles:
        """See Credentials."""
        of: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        for (user, mechanism), credential in self.found.items():
            of.setdefault(user, {})[mechanism] = credential
        return some_of(Counter(map(profile_of, of.values())))
