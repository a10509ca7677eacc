"""`covey health`: for containers and services; exit code 0 while the server or the site in a folder is alive."""

import time
from pathlib import Path

from covey.errors import RunError, UserError

SIGNS = ("alive", "status.json", "*/status.json")  # of a site, and of a server's run folder or its parent
SECONDS = 180.0  # a site gives a sign with every heartbeat, a server every two seconds


def health(folder: Path) -> None:
    """Say whether the server or the site in this folder gave a sign of life in the last three minutes.

    Args:
        folder: a site's --state folder, or a server's run folder.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    signs = [path.stat().st_mtime for sign in SIGNS for path in folder.glob(sign)]
    if not signs:
        raise RunError(f"nothing in {folder} has given a sign of life yet")
    age = time.time() - max(signs)
    if age > SECONDS:
        raise RunError(f"the last sign of life in {folder} is {age:.0f} s old")
