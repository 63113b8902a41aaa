"""Each question is one that SMQ's own tables know, in a version that they have."""

import re

import pytest

from smq.client.kafka import questions
from smq.client.kafka.questions import FETCH, FETCH_BY_NAME, Question

ALL = {name: each for name, each in vars(questions).items() if isinstance(each, Question)}


@pytest.mark.parametrize("name", ALL)
def test_a_question_is_named_for_its_api_and_asked_in_a_version_we_know(name: str) -> None:
    question = ALL[name]
    api_name = re.sub("_BY_(NAME|ID)$|_", "", name).lower()
    assert question.api.name.lower() == api_name
    assert question.api.first_version <= question.version_max <= question.api.last_version


def test_a_fetch_by_name_is_older_than_one_by_id() -> None:
    assert FETCH_BY_NAME.version_max < FETCH.version_max
