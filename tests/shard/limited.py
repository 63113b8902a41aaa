"""A shard whose clients may not do everything, and the rules that say what they may."""

from dataclasses import replace
from pathlib import Path

from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.access import AccessView
from smq.security.acls import AclBinding, Operation
from smq.security.principals import Peer, Principal
from smq.shard.shard import Shard
from tests.security.test_access import FakeBlock
from tests.shard.shard_bench import catalog, new_shard

HOME, AWAY = "10.0.0.1", "10.0.0.2"
MAY = {Operation.WRITE: "write", Operation.READ: "read"}


def peer(name: str = "alice", host: str = HOME) -> Peer:
    return Peer(Principal("User", name), host)


def limited_shard(
    directory: Path, block: FakeBlock, *topics: Topic, allow_if_no_rule: bool = False
) -> Shard:
    """A shard with an authorizer, whose rules are those that `block` publishes."""
    config = replace(
        Config(),
        authorizer_class_name=STANDARD_AUTHORIZER,
        allow_everyone_if_no_acl_found=allow_if_no_rule,
    )
    return new_shard(
        directory,
        *topics,
        access=AccessView(block, config),
        allow_everyone_if_no_acl_found=allow_if_no_rule,
    )


class Limited:
    """Such a shard, and its bitmaps."""

    def __init__(self, directory: Path, *topics: Topic, allow_if_no_rule: bool = False) -> None:
        self.block = FakeBlock()
        self.shard = limited_shard(
            directory, self.block, *topics, allow_if_no_rule=allow_if_no_rule
        )
        assert self.shard.bitmaps is not None
        self.bitmaps = self.shard.bitmaps
        self._catalog_version = 1

    def rule(self, *rules: AclBinding) -> None:
        """These are the rules now."""
        self.block.publish(*rules)
        self.shard.access.refresh()
        self.bitmaps.follow()

    def have(self, *topics: Topic) -> None:
        """These are the topics now."""
        self._catalog_version += 1
        self.shard.take_catalog(catalog(*topics), self._catalog_version)

    def code(self, name: str, index: int = 0) -> int:
        found = self.shard.find_named(name, index)
        return found.code  # type: ignore[union-attr]

    def ask(self, who: Peer, name: str, operation: Operation = Operation.WRITE) -> bool:
        """As Python decides a client's request."""
        may = self.shard.access.rights_of(who).topic(operation, name)
        if may:
            self.bitmaps.learn(who, operation, [self.code(name)])
        return may

    def has(self, who: Peer, name: str, operation: Operation = Operation.WRITE) -> bool:
        """Whether a kernel would take it."""
        return self.bitmaps.has(who, operation, [self.code(name)])
