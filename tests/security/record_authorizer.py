"""Ask Kafka's own StandardAuthorizer about every world, and record its answers:

python -m tests.security.record_authorizer
"""

import subprocess
from pathlib import Path

from smq.testing.kafka import kafka_jars
from tests.security.worlds import worlds

HERE = Path(__file__).parent
RECORDED = HERE / "authorizer_recorded.txt"


def main() -> None:
    """Record them: a world a line, a digit for each question."""
    asked = "\n".join(line for world in worlds() for line in world.lines())
    command = ("java", "-cp", f"{kafka_jars()}/*", str(HERE / "Referee.java"))
    answered = subprocess.run(command, input=asked, text=True, capture_output=True, check=True)
    RECORDED.write_text(answered.stdout)


if __name__ == "__main__":
    main()
