"""The nodes as Metadata shows them: with no generation that is newer than our catalog.

A node that starts while a partition moves away from it takes a generation in which it never leads
that partition, and which may be above the epoch of the next leader. A client that has been shown it
would ignore the next leader for ever. The catalog says which partitions move. So a generation
counts once it was read while no newer catalog was published than the one by which it is shown.
"""

from collections.abc import Callable

from smq.model.catalog import Node

NodesOf = Callable[[str], list[Node]]
"""All nodes, with the addresses of a listener; "": of the first."""


class SettledNodes:
    """`nodes_of` reads them; `has_newest` tells whether our catalog is the newest published now."""

    def __init__(self, nodes_of: NodesOf, has_newest: Callable[[], bool]) -> None:
        self._nodes_of, self._has_newest = nodes_of, has_newest
        self._settled = _generations(nodes_of(""))  # Before the first catalog is taken.

    def __call__(self, listener: str = "") -> list[Node]:
        """The nodes, as NodesOf."""
        nodes = self._nodes_of(listener)
        if self._has_newest():
            self._settled = _generations(nodes)
            return nodes
        return [each._replace(generation=self._settled[each.id]) for each in nodes]


def _generations(nodes: list[Node]) -> dict[int, int]:
    return {each.id: each.generation for each in nodes}
