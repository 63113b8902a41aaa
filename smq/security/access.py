"""Users and access rules as one of our processes knows them: it follows what the coordinator
publishes. That takes as long as what has changed is much, but for a copy of all.

The authorizer looks at the version before each decision. So what a client is told to be changed
holds for every request that it sends from then on, in every process.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np

from smq.model.config import Config
from smq.security.acls import AclBinding
from smq.security.audit import Audit
from smq.security.authorizer import Authorizer
from smq.security.credentials import (
    Profile,
    Profiles,
    ScramCredential,
    ScramMechanism,
    profile_of,
    some_of,
)
from smq.security.principals import Peer, parse_super_users
from smq.security.published import (
    ACCESS_BYTES_MAX,
    Change,
    UserCredential,
    changes_of,
    decode,
    entries_of,
)
from smq.security.rights import Rights
from smq.security.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Callable

PUBLISHED_BYTES_MAX = ACCESS_BYTES_MAX + 128 * 1024
"""With what has changed."""


def authorizer_of(config: Config, rules: Rules) -> Authorizer | None:
    """The authorizer that the settings ask for; None: none."""
    if not config.authorizer_class_name:
        return None
    return Authorizer(
        rules,
        parse_super_users(config.super_users),
        allow_if_no_rule=config.allow_everyone_if_no_acl_found,
    )


class Block(Protocol):
    """Where they are published (shm.catalog).

    words   int64, the version first: what a kernel looks at
    """

    words: np.ndarray

    def has_moved(self, version: int) -> bool:
        """Whether there is another version than this one."""

    def read(self) -> tuple[int, bytes]:
        """The version published last, and its value."""


class NothingPublished:
    """A block in which nobody publishes."""

    def __init__(self) -> None:
        self.words = np.zeros(1, np.int64)

    def has_moved(self, version: int) -> bool:  # noqa: ARG002  (See Block.)
        """See Block."""
        return False

    def read(self) -> tuple[int, bytes]:
        """See Block."""
        return 0, b""


def _nobody(_changed: AclBinding | str) -> None:
    """Nobody follows the rules, or the users."""


class AccessView:
    """The users' credentials, the rules, and an authorizer by them; None: everybody may do
    everything.

    version             of what was read last; 0: nothing yet
    rules               as of that version
    when_rule_changes   called with a rule that has come or gone
    when_user_changes   called with the name of who has lost or got a credential
    audit               who was refused what
    """

    def __init__(self, block: Block, config: Config) -> None:
        self._block, self.rules = block, Rules()
        self.authorizer = authorizer_of(config, self.rules)
        self.audit = Audit(on=config.is_audited)
        self._entries: dict[str, UserCredential | AclBinding] = {}
        self._credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}  # By user.
        self._profiles: Counter[Profile] = Counter()
        self._some_profiles: Profiles | None = None  # Of these; None: they have changed.
        self.version = 0
        self.when_rule_changes: Callable[[AclBinding], None] = _nobody
        self.when_user_changes: Callable[[str], None] = _nobody
        if self.authorizer is not None:
            self.authorizer.refresh = self.refresh

    @property
    def words(self) -> np.ndarray:
        """The version published last, for kernels."""
        return self._block.words

    def invariants(self) -> None:
        """Assert that the index and the credentials are those of the lines."""
        self.rules.invariants()
        assert len(self.rules) + sum(map(len, self._credentials.values())) == len(self._entries)
        assert self._profiles == Counter(map(profile_of, self._credentials.values()))
        assert all(self._profiles.values())

    def refresh(self) -> int:
        """Take what was published since; returns its version."""
        if self._block.has_moved(self.version):
            before = self.version
            self.version, published = self._block.read()
            changes = changes_of(published, self.version - before)
            if changes is None:
                changes = [self._change_to(decode(published))]
            for each in changes:
                self._take(each)
        return self.version

    def _change_to(self, lines: list[str]) -> Change:
        """What has to change so that there are these lines: all are looked at."""
        known, there = self._entries, set(lines)
        gone = [line for line in known if line not in there]
        return Change(gone, [line for line in lines if line not in known])

    def _take(self, change: Change) -> None:
        known = self._entries
        for line in change.gone:
            self._forget(known.pop(line))
        for line, entry in zip(change.come, entries_of(change.come), strict=True):
            known[line] = self._enter(entry)

    def _forget(self, entry: UserCredential | AclBinding) -> None:
        if isinstance(entry, AclBinding):
            self.rules.remove(entry)
            self.when_rule_changes(entry)
        else:
            with self._profiled(entry.user) as its:
                del its[entry.mechanism]
            self.when_user_changes(entry.user)

    def _enter(self, entry: UserCredential | AclBinding) -> UserCredential | AclBinding:
        if isinstance(entry, AclBinding):
            self.rules.add(entry)
            self.when_rule_changes(entry)
        else:
            with self._profiled(entry.user) as its:
                its[entry.mechanism] = entry.credential
            self.when_user_changes(entry.user)
        return entry

    @contextmanager
    def _profiled(self, user: str) -> Iterator[dict[ScramMechanism, ScramCredential]]:
        """A user's credentials, which are to be changed."""
        its = self._credentials.setdefault(user, {})
        before = profile_of(its)
        yield its
        after = profile_of(its)
        if not its:
            del self._credentials[user]
        if before != after:
            self._some_profiles = None
            self._profiles[after] += bool(after)
            self._profiles[before] -= bool(before)
            for each in (before, after):
                if not self._profiles[each]:
                    del self._profiles[each]

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """A user's credential; None: there is none."""
        self.refresh()
        return self._credentials.get(user, {}).get(mechanism)

    def profiles(self) -> Profiles:
        """See Credentials."""
        self.refresh()
        if self._some_profiles is None:
            self._some_profiles = some_of(self._profiles)
        return self._some_profiles

    def rights_of(self, peer: Peer) -> Rights:
        """What a peer may do, now and later."""
        return Rights(self.authorizer, peer, self.audit)
