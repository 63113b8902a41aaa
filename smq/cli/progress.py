"""Shows the progress of long work on stderr, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(label: str, total: int | None, *, is_bytes: bool = False) -> Iterator[Advance]:
    """Show progress while the block runs. Call the yielded function with each further amount.

    `total` is None if unknown. Nothing is shown unless stderr is a terminal.
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
