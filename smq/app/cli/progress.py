"""The progress of long work, on stderr where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(label: str, total: int | None, *, is_bytes: bool = False) -> Iterator[Advance]:
    """Shows how much is done while the block runs; call what it gives with each further amount.

    `total` is None while nobody knows it. Nothing is shown where stderr is no terminal.
    """
    from rich.console import Console  # noqa: PLC0415  (takes its time)
    from rich.progress import (  # noqa: PLC0415  (as above)
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts = (DownloadColumn(), TransferSpeedColumn()) if is_bytes else (MofNCompleteColumn(),)
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *amounts,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with shown:
        task = shown.add_task(label, total=total)
        yield lambda amount: shown.update(task, advance=amount)
