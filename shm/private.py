"""Whether a directory is this user's alone to write: what lies there is code that we run."""

import os
import stat
import sys
from pathlib import Path

ROOT = 0


def is_private(directory: Path) -> bool:
    """Whether only this user and root can put files into a directory, or another in its place.

    `directory` exists and is resolved. Anybody may add to a sticky directory, such as /tmp, but
    replaces nobody else's entries there.
    """
    if sys.platform == "win32":  # A user's temporary directory is the user's.
        return True
    ours = {ROOT, os.getuid()}
    for each in (directory, *directory.parents):
        status = each.stat()
        may_others_write = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        is_sticky = each != directory and bool(status.st_mode & stat.S_ISVTX)
        if status.st_uid not in ours or (may_others_write and not is_sticky):
            return False
    return True
