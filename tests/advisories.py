"""Whether a known vulnerability is in what is installed here: `python -m tests.advisories`.

pip-audit asks PyPI. It fails on a vulnerability. Where the advisories cannot be reached 'not run'
is printed and nothing fails: a broken network says nothing about the packages.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

COMMAND = (
    *(sys.executable, "-m", "pip_audit", "--local", "--skip-editable"),
    *("--progress-spinner", "off", "--timeout", "15", "--format", "json"),
)
LIMIT_S = 180
UNREACHABLE = re.compile(
    r"Could not connect|ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError"
    r"|Max retries exceeded|Tunnel connection failed|HTTPError|[45]\d\d (?:Client|Server) Error"
)
Result = subprocess.CompletedProcess[str]


def audit(call: Callable[[Sequence[str]], Result], say: Callable[[str], object]) -> int:
    """The exit code; `call` runs a command."""
    try:
        result = call(COMMAND)
    except subprocess.TimeoutExpired:
        say(f"not run: the advisories have not come in {LIMIT_S} s")
        return 0
    try:
        packages = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = result.stderr.strip().splitlines()[-1:] or ["it has said nothing"]
        if UNREACHABLE.search(result.stderr):
            say(f"not run: the advisories cannot be reached: {last[0]}")
            return 0
        say(f"pip-audit has failed: {last[0]}")
        return result.returncode or 1
    found = [sentence for package in packages for sentence in _sentences(package)]
    for sentence in found:
        say(sentence)
    asked_count = sum("vulns" in package for package in packages)
    if not asked_count:  # A mirror without advisories knows no package.
        say(f"not run: of none of {len(packages)} packages there are advisories here")
        return 0
    unknown_count = len(packages) - asked_count
    say(f"{asked_count} packages, {len(found)} known vulnerabilities; {unknown_count} not on PyPI")
    return 1 if found else 0


def _sentences(package: dict[str, Any]) -> list[str]:
    return [
        f"{package['name']} {package['version']}: {each['id']}, "
        f"mended in {', '.join(each['fix_versions']) or 'no version'}"
        for each in package.get("vulns", ())
    ]


def _call(command: Sequence[str]) -> Result:
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


if __name__ == "__main__":
    sys.exit(audit(_call, print))
