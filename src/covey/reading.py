"""Files that somebody may have damaged: regular ones only, of a bounded size, and JSON as its standard has it."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from covey.errors import UserError

MOST = 2**30  # bytes of a file that is read whole


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading; an OSError where it is a pipe or a device, for which one would wait without end."""
    place = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(place).st_mode):
        os.close(place)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(place, "rb")


def read_whole(path: Path, most: int = MOST) -> bytes:
    """All of a regular file; an OSError where it has more bytes than `most`."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read()


def read_json(path: Path) -> Any:
    """What a JSON file holds, with None for NaN and infinities; one sentence where it cannot be read.

    A file that is not there is a FileNotFoundError: mostly it only has not been written yet.
    """
    try:
        return json.loads(read_whole(path), parse_constant=lambda _: None)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path} is damaged: it cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it cannot be read as JSON") from error
