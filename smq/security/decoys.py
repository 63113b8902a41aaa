"""What a login is checked with whose user does not exist, so that it takes the same course.

Else the first message of a server would tell which users there are, and the time that a password
takes. A decoy's salt is the same each time and looks like those that Kafka's tools make. Its user
has the mechanisms and iterations of one of those that there are, and keeps them while other users
come and go. A user who exists without the mechanism has his own: two profiles in one would name
him. No password can be known that fits its keys: they are no hashes of anything known. Kafka 4.3
refuses unknown users at once (docs/deviations.md).
"""

import hmac
from collections.abc import Sequence

from smq.security.credentials import (
    Checked,
    Profile,
    ScramCredential,
    ScramMechanism,
    profile_of,
)

ITERATIONS = 4096  # The least that Kafka takes, and what its tools choose.
USUAL: Profile = tuple((each, ITERATIONS) for each in ScramMechanism)
SALT_BITS = 130  # As ScramFormatter.secureRandomString of Kafka: about 26 letters and digits.
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Decoys:
    """`secret` makes them; with another one they would change, and give themselves away."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def profile(self, user: str, profiles: Sequence[Profile]) -> Profile:
        """Which of these a user has who does not exist: where others come and go, few change."""

        def weight(profile: Profile) -> bytes:
            words = ",".join(f"{each.value}:{iterations}" for each, iterations in profile)
            return self._derived(f"profile {words}", user)

        return max(profiles, key=weight, default=USUAL)

    def of(
        self,
        user: str,
        mechanism: ScramMechanism,
        profiles: Sequence[Profile] = (),
        own: Profile = (),
    ) -> ScramCredential:
        """The decoy of a user who does not exist, beside those of these profiles; or of one who
        exists with a profile of his `own`, but without this mechanism."""
        number = int.from_bytes(self._derived("salt", user, mechanism)) % (1 << SALT_BITS)
        stored_key = mechanism.hashed(self._derived("stored key", user, mechanism))
        server_key = mechanism.hashed(self._derived("server key", user, mechanism))
        chosen = self.profile(user, profiles)  # In any case: it takes its time.
        iterations = dict(own or chosen).get(mechanism, ITERATIONS)
        return ScramCredential(base36(number).encode(), stored_key, server_key, iterations)

    def _derived(self, purpose: str, user: str, mechanism: ScramMechanism | None = None) -> bytes:
        name = "" if mechanism is None else mechanism.sasl_name
        words = f"{purpose}\0{name}\0{user}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, words, "sha256")


def credential_or_decoy(checked: Checked, decoys: Decoys) -> ScramCredential:
    """A user's credential, or what stands in for it. Both are computed, so that both take as
    long."""
    user, credentials = checked.user, checked.credentials
    found = {each: credentials.find(user, each) for each in ScramMechanism}
    own = profile_of({each: one for each, one in found.items() if one is not None})
    decoy = decoys.of(user, checked.mechanism, credentials.profiles(), own)
    return checked.found or decoy


def base36(number: int) -> str:
    """A number as Java's BigInteger.toString(36) writes it."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
