"""Resources with configs are handled few at a time: by their number, and by how long they are."""

import pytest

from gateway.apis.configs.parts import PART_CHARACTERS, PART_RESOURCES, parts_of

FEW, MANY = [1] * PART_RESOURCES, PART_CHARACTERS + 1


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], [[]]),
        ([MANY], [[MANY]]),
        (FEW, [FEW]),
        ([*FEW, 1], [FEW, [1]]),
        ([MANY, MANY, 1, 2], [[MANY], [MANY], [1, 2]]),
        ([1, PART_CHARACTERS - 1, 1], [[1, PART_CHARACTERS - 1], [1]]),
    ],
)
def test_a_part_has_few_resources_and_few_characters(
    sizes: list[int], parts: list[list[int]]
) -> None:
    assert list(parts_of(sizes, int)) == parts
