# ruff: noqa: SIM115  (files that stay open as long as the process that writes to them)
"""The command line in a process of its own that is forked from this one: nothing has to be imported again."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from covey.cli import main
from covey.files import failing_at


class Forked:
    """A forked process: its id, and what it said when it has ended."""

    def __init__(self, work: Callable[[], None], cwd: Path | None = None) -> None:
        self.out, self.err = (tempfile.TemporaryFile() for _ in range(2))
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # what the child inherits is not freed there, which may wait for threads that it does not have
        self.pid = os.fork()
        if self.pid:
            gc.unfreeze()
        else:
            _in_the_child(work, self.out, self.err, cwd)

    def wait_until_stopped(self) -> None:
        """Until it has stopped itself (SIGSTOP)."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it has ended"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Its exit code, and what it said."""
        _, status = os.waitpid(self.pid, 0)
        said = []
        for file in (self.out, self.err):
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
            file.close()
        return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(status), said[0], said[1])


def _in_the_child(work: Callable[[], None], out: IO[bytes], err: IO[bytes], cwd: Path | None) -> None:
    """Never comes back: what the parent has yet to do is no business of the child's."""
    code = 70
    try:
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # as in a program that was started at a terminal
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdin = open(os.devnull, encoding="utf-8")
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)
        os.chdir(cwd or os.getcwd())
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(words: Sequence[str], cwd: Path | None = None) -> Forked:
    """`covey WORDS...`, begun."""

    def command() -> None:
        sys.argv = ["covey", *words]
        main()

    return Forked(command, cwd)


def signalled_after(folder: Path, number: int, how: signal.Signals, words: Sequence[str]) -> Forked:
    """`covey WORDS...`, which gets a signal once a round's checkpoint is in its folder, however busy the machine."""
    sent = False

    def point(what: str, path: Path) -> None:
        nonlocal sent
        if not sent and any(
            int(file.stem) >= number for file in (folder / "checkpoint").glob("*.safetensors")
        ):
            sent = True
            os.kill(os.getpid(), how)

    def command() -> None:
        sys.argv = ["covey", *words]
        with failing_at(point):
            main()

    return Forked(command)


def covey(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`covey WORDS...`, to its end."""
    return start(words, cwd).wait()


def python(program: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program as `python -c` runs it, to its end."""
    return Forked(lambda: exec(compile(program, "<program>", "exec"), {"__name__": "__main__"}), cwd).wait()
