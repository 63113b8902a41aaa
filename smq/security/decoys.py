"""What a login is checked with whose user does not exist, so that it takes the same course.

Else the first message of a server would tell which users there are, and the time that a password
takes. A decoy's salt is the same each time. Its user has the mechanisms, the iterations and the
form of salts of one of those that there are, and keeps them while other users come and go. A user
who exists without the mechanism has his own: two profiles in one would name him. No password can be
known that fits its keys: they are no hashes of anything known. Kafka 4.3 refuses unknown users at
once (docs/deviations.md).
"""

import hmac
from math import log
from types import MappingProxyType

from smq.security.credentials import (
    Checked,
    Hashing,
    Profile,
    Profiles,
    ScramCredential,
    ScramMechanism,
    profile_of,
)
from smq.security.salts import USUAL_SALT, salt_of

ITERATIONS = 4096  # The least that Kafka takes, and what its tools choose.
_USUALLY = Hashing(ITERATIONS, USUAL_SALT)
DRAWN_BYTES = 6  # A float has room for their 48 bits and a half.
NO_PROFILES: Profiles = MappingProxyType({})
USUAL: Profile = tuple((each, _USUALLY) for each in ScramMechanism)


class Decoys:
    """`secret` makes them; with another one they would change, and give themselves away."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def profile(self, user: str, profiles: Profiles) -> Profile:
        """Which of these a user has who does not exist, as likely as one who does. Where others
        come and go, few change: it is weighted rendezvous hashing."""

        def score(profile: Profile) -> float:
            words = ",".join(_word(each, hashing) for each, hashing in profile)
            drawn = int.from_bytes(self._derived(f"profile {words}", user)[:DRAWN_BYTES])
            return profiles[profile] / -log((drawn + 0.5) / (1 << 8 * DRAWN_BYTES))

        return max(profiles, key=score, default=USUAL)

    def of(
        self,
        user: str,
        mechanism: ScramMechanism,
        profiles: Profiles = NO_PROFILES,
        own: Profile = (),
    ) -> ScramCredential:
        """The decoy of a user who does not exist, beside those of these profiles; or of one who
        exists with a profile of his `own`, but without this mechanism."""
        stored_key = mechanism.hashed(self._derived("stored key", user, mechanism))
        server_key = mechanism.hashed(self._derived("server key", user, mechanism))
        chosen = self.profile(user, profiles)  # In any case: it takes its time.
        hashing = dict(own or chosen).get(mechanism, _USUALLY)
        salt = salt_of(hashing.salt, self._derived("salt", user, mechanism))
        return ScramCredential(salt, stored_key, server_key, hashing.iterations)

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


def _word(mechanism: ScramMechanism, hashing: Hashing) -> str:
    word = f"{mechanism.value}:{hashing.iterations}"
    if hashing.salt == USUAL_SALT:
        return word
    return f"{word}:{hashing.salt.kind}:{hashing.salt.length}"
