"""docs/team.md, from its beginning to its end."""

import re

import pytest

from tests.docs.guides import needs_a_namespace, walked

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1100), needs_a_namespace]


def test_the_guide_of_a_team_leads_from_keys_to_the_audit_log() -> None:
    said = walked("team_of_three")
    for line in (
        "rules: 3 added, 0 were there",
        "created orders with 3 partitions",
        "spent: 5.0",
    ):
        assert f"{line}\n" in said
    assert "User:bob may not WRITE TOPIC orders from" in said
    for denied in (
        '["User:alice","READ","orders"]',
        '["User:alice","DELETE","orders"]',
        '["User:bob","IDEMPOTENT_WRITE","kafka-cluster"]',
    ):
        assert denied in said
    assert re.search(r'\["act","User:carol","CREATE","orders"\]', said)
    assert re.search(r'"columns":\["orders"\].*"rows":\[\[2\]\]', said)
    assert "scraped by " in said
