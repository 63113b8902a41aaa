"""A confined process takes no privileges and little memory; it is tried in a process of its own."""

import subprocess
import sys

MiB = 1 << 20


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from shm.confined import confine, memory_limited\n{code}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_memory_beyond_the_limit_is_refused() -> None:
    assert run(f"confine({64 * MiB}); bytearray({32 * MiB})").returncode == 0
    beyond = run(f"confine({64 * MiB}); bytearray({128 * MiB})")
    assert "MemoryError" in beyond.stderr


def test_no_new_privileges_are_taken() -> None:
    said = run(f"confine({64 * MiB}); print(open('/proc/self/status').read())").stdout
    assert "NoNewPrivs:\t1" in said


def test_memory_is_limited_within_the_block_only() -> None:
    large = f"bytearray({128 * MiB})"
    within = f"    try: {large}\n    except MemoryError: print('refused')\n"
    done = run(f"with memory_limited({64 * MiB}):\n{within}{large}")
    assert (done.returncode, done.stdout) == (0, "refused\n")
