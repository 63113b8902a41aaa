"""The command as a whole."""

from tests.app.smq_command import smq


def test_it_does_not_run_without_assertions() -> None:
    done = smq("serve", "--help", PYTHONOPTIMIZE="1")
    assert done.returncode == 1
    assert done.stderr.startswith("smq: assertions are required")
