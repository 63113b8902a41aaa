"""`smq snapshot` and `smq restore`: back up a data directory, even while it is served."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.process.clock import monotonic_ms
from smq.app.process.refusal import refuse_wire_only
from smq.cli.client import AsJson, refusal
from smq.cli.output import say
from smq.cli.progress import progress
from smq.cli.serve import ConfigFile
from smq.cli.start import load_config
from smq.cli.status import size
from smq.model.catalog import NAMESPACE_DEFAULT
from smq.model.errors import StoreError
from smq.model.printable import printable
from smq.model.setting import PathOrUrl
from smq.security.acls import described

if TYPE_CHECKING:
    from smq.backup.folder import About
    from smq.model.config import Config

JSON = (
    'JSON: {"snapshot": DIRECTORY, "cluster_id", "taken_ms", "smq_version", "topics": '
    '["NAMESPACE/TOPIC"] or null: all, "log_ends": {LOG: POSITION}, "file_count", "total_bytes", '
    '"check", "format", "took_ms"}; of a restore also "users": [NAME], "rules": [TEXT]'
)
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Only this topic; may be repeated.", metavar="TOPIC"),
]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="The broker's data directory.")]


def snapshot(
    folder: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The target: a new or empty directory.")
    ],
    data_dir: DataDir = None,
    config: ConfigFile = None,
    *,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Copy a data directory, and its filer, as they are at one moment, served or not.

    Files that never change are hard links where DIRECTORY is on the same file system: that takes no
    room until the broker deletes them.
    """
    refuse_wire_only()
    from smq.app.process.status import read_status  # noqa: PLC0415  (as above)
    from smq.backup.take import Taking, prepare  # noqa: PLC0415  (NumPy takes its time.)
    from smq.filer.location import Location  # noqa: PLC0415  (as above)

    settings = _settings(config, data_dir)
    found = read_status(settings.data_dir)
    if found is not None:  # The broker may use another one, from its command line.
        settings = replace(settings, filer_root=PathOrUrl(found[0].filer_root))
    started_ms = monotonic_ms()
    os.umask(0o077)
    with (
        _failures_told(folder),
        progress("files", None, is_bytes=True) as advance,
        prepare(folder, settings.data_dir, Path(settings.filer_root)),
    ):
        filer = Location.of(settings).open()
        about = Taking(settings.data_dir, filer, folder, _selected(topic), advance).run()
    _tell("taken", folder, about, started_ms, {}, as_json=as_json)


def restore(  # noqa: PLR0913  (Each is an option.)
    folder: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="A snapshot that `smq snapshot` made.")
    ],
    data_dir: DataDir = None,
    config: ConfigFile = None,
    *,
    topic: Topics = None,
    new_cluster: Annotated[
        bool,
        typer.Option(
            "--new-cluster",
            help="Give it a new cluster id, to run beside the original.",
        ),
    ] = False,
    without_users: Annotated[
        bool,
        typer.Option(
            "--without-users",
            help="Leave out the users and access rules of the snapshot, which may be another's.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fill an empty data directory, and an empty filer, from a snapshot.

    Users and access rules that come along are listed: who could change the snapshot may log in.
    """
    refuse_wire_only()
    from smq.app.supervisor.modes import set_umask  # noqa: PLC0415  (as above)
    from smq.backup.restore import Restoring  # noqa: PLC0415  (NumPy takes its time.)
    from smq.filer.location import Location  # noqa: PLC0415  (as above)

    settings = _settings(config, data_dir)
    set_umask(settings)
    started_ms = monotonic_ms()
    with _failures_told(settings.data_dir), progress("files", None, is_bytes=True) as advance:
        about, access = Restoring(
            source=folder,
            data_dir=settings.data_dir,
            filer=Location.of(settings).open(drops_pages=True),
            filer_root=settings.filer_root,
            topics=_selected(topic),
            is_new_cluster=new_cluster,
            advance=advance,
            with_users=not without_users,
        ).run()
    users = sorted({each.user for each in access.credentials})
    rules = [described(rule) for rule in access.rules]
    came = {"users": users, "rules": rules}
    _tell(f"restored into {settings.data_dir}", folder, about, started_ms, came, as_json=as_json)
    if not as_json:
        for what, names in came.items():
            for name in names:
                say(f"{what[:-1]} {printable(name)}")


def _settings(config: Path | None, data_dir: str | None) -> "Config":
    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    return settings


def _selected(topics: list[str] | None) -> set[tuple[str, str]] | None:
    return {(NAMESPACE_DEFAULT, name) for name in topics} if topics else None


def _tell(  # noqa: PLR0913  (what was done, and what came of it)
    did: str,
    folder: Path,
    about: "About",
    started_ms: int,
    more: dict[str, list[str]],
    *,
    as_json: bool,
) -> None:
    took_ms = monotonic_ms() - started_ms
    if as_json:
        say(json.dumps({"snapshot": str(folder)} | asdict(about) | more | {"took_ms": took_ms}))
        return
    what = f"{about.file_count} files, {size(about.total_bytes)}, in {took_ms / 1000:.1f} s"
    say(f"{folder} is {did}: {what}")


@contextmanager
def _failures_told(place: Path) -> Iterator[None]:
    from smq.backup.held import NotWhole  # noqa: PLC0415  (NumPy takes its time.)
    from smq.backup.take import Refused  # noqa: PLC0415  (as above)
    from smq.log.files.disk import told  # noqa: PLC0415  (as above)

    try:
        yield
    except (NotWhole, Refused, StoreError) as reason:
        raise refusal(str(reason)) from reason
    except OSError as reason:
        raise refusal(f"{place} cannot be written: {told(reason)}") from reason
