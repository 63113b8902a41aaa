"""Generations are shown by a catalog that is no older."""

from smq.app.shard.settled import SettledNodes
from smq.model.catalog import Node


class World:
    """Two nodes that start now and then, and a coordinator that publishes catalogs."""

    def __init__(self) -> None:
        self.generations = {1: 5, 2: 5}
        self.published = 1
        self.publishes_while_read = False

    def nodes(self, listener: str) -> list[Node]:
        nodes = [Node(node, listener or "h", 9, each) for node, each in self.generations.items()]
        self.published += self.publishes_while_read
        return nodes


def shown(nodes: SettledNodes, listener: str = "") -> list[int]:
    return [each.generation for each in nodes(listener)]


def test_a_generation_is_shown_at_once_by_the_newest_catalog() -> None:
    world = World()
    nodes = SettledNodes(world.nodes, lambda: True)
    world.generations[1] = 6
    assert shown(nodes) == [6, 5]
    assert [each.host for each in nodes("other")] == ["other", "other"]


def test_a_generation_that_is_newer_than_the_catalog_waits_for_the_next_one() -> None:
    world, taken = World(), 1
    nodes = SettledNodes(world.nodes, lambda: taken == world.published)
    world.published = 2  # Node 1's partition moves now, by a catalog that is not taken yet.
    world.generations[1] = 6
    assert shown(nodes) == shown(nodes, "other") == [5, 5]
    taken = 2
    assert shown(nodes) == [6, 5]


def test_a_catalog_that_is_published_while_generations_are_read_may_be_older_than_these() -> None:
    world = World()
    nodes = SettledNodes(world.nodes, lambda: world.published == 1)
    world.generations[1], world.publishes_while_read = 6, True
    assert shown(nodes) == [5, 5]
