"""What ships: builds the wheel, installs it beside nothing of this checkout, and asks it for help.

An editable installation lies about that. Dependencies are those of the environment.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDERS = {"smq", "shm", "gateway", "spark_jobs", "pyspark_smq"}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", ".", "--no-deps", "--wheel-dir", directory], check=True)
        (wheel,) = target.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        folders = {name.split("/")[0] for name in names if ".dist-info" not in name}
        assert folders == FOLDERS, f"the wheel holds {folders}"
        installed = target / "installed"
        subprocess.run(
            [*pip, "install", str(wheel), "--no-deps", "--target", str(installed)], check=True
        )
        code = (
            f"import sys; sys.path[:0] = [{str(installed)!r}]\n"
            "import smq.app.supervisor.composition as c; from smq.app.cli.main import app\n"
            f"assert c.__file__.startswith({str(installed)!r}), c.__file__\n"
            "app(['--help'])"
        )
        subprocess.run(
            [sys.executable, "-c", code], check=True, cwd=directory, stdout=subprocess.DEVNULL
        )


if __name__ == "__main__":
    main()
