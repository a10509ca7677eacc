"""`python -m tests.fuzz.commands CASES [SEED]`: command lines as users mistype them and strangers make them up.

Whatever is asked, a command does it or says in a sentence why not; a traceback is a fault. Everything until the first
round is the command's own; nothing is trained. Each case has a process of its own and a bound on its time.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing as mp
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import typer
from hypothesis import strategies as st

from covey import cli
from covey.errors import RunError
from tests.fuzz.frame import HEAD, Subject, fuzz
from tests.fuzz.readers import run

SECONDS = 20  # of one case; one that takes longer has found nothing wrong with it
ELSEWHERE = ("serve", "join")  # they wait for others
WORDS = [
    "", "-1", "0", "1", "3", "1e400", "nan", "inf", "-inf", "1" + "0" * 400, "0.5", "none", "true", "[]", "[", "{", "=",
    "a=b", "..", "../..", "/", "/dev/null", "x" * 300, "\x1b[31m", "\udcff", "ä", "a b;rm", "a\nb", "--", "-",
    "seed=0..9", "train.lr=nan..inf", "train.lr=0.1,0.2", "train.lr=1..10", "method.mu=" + "[" * 3000, "data.clients=3",
    "method.name=compose", "private.epsilon=8", "train.lr=-1", "guard.norm=nan", "rounds=10000000000000", "name=\udcff",
    "fedavg", "covey", "haccs", "mlp", "digits", "table", "dir-class", "label", "group", "ring", "empty", "empty.toml",
    "odd.toml", "empty.csv", "odd.csv", "odd.parquet", "odd.npz", "empty.crt", "folder", "finished", "begun", "damaged",
    "pipes", "certs", "odd.toml:x", "odd.py:x", "covey.nothing:x", "127.0.0.1:1", "localhost",
]  # fmt: skip


@cache
def scratch() -> Path:
    """A folder with files of every kind, good and bad."""
    folder = run().parent
    for name in ("empty", "empty.toml", "empty.csv", "empty.crt"):
        (folder / name).write_bytes(b"")
    (folder / "odd.toml").write_text("rounds = 1\n[method]\nname = 3\n")
    (folder / "odd.csv").write_text("y,a\n1,2\n1\n,,,\n")
    for name in ("odd.parquet", "odd.npz"):
        (folder / name).write_bytes(b"PAR1PK\3\4 not really")
    (folder / "odd.py").write_text("x = 3\nraise KeyError('no')\n")
    (folder / "folder").mkdir()
    (folder / "certs" / "sites").mkdir(parents=True)
    for name in ("server.crt", "ca.crt", "ca.key", "sites.json"):
        (folder / "certs" / name).write_bytes(b"")
    (folder / "damaged").mkdir()
    for name in ("config.toml", "metrics.jsonl", "summary.json", "checkpoint.json"):
        (folder / "damaged" / name).write_text("[" * 5000)
    (folder / "pipes").mkdir()
    for name in ("config.toml", "metrics.jsonl", "summary.json", "checkpoint.json"):
        os.mkfifo(folder / "pipes" / name)  # whoever opens it waits for ever
    return folder


def all_commands() -> dict[tuple[str, ...], list[Any]]:
    """The parameters of every command by its words."""
    found: dict[tuple[str, ...], list[Any]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))
        if not hasattr(command, "commands") and words[0] not in ELSEWHERE:
            found[words] = list(command.params)

    walk(typer.main.get_command(cli.app), ())
    return found


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its arguments and options, and words that they were not meant for."""
    commands = all_commands()
    words = draw(st.sampled_from(sorted(commands)))
    line = list(words)
    arguments = [one for one in commands[words] if one.param_type_name == "argument"]
    options = [one for one in commands[words] if one.param_type_name == "option"]
    value = st.sampled_from(WORDS)
    for one in arguments:
        line += draw(st.lists(value, max_size=3 if one.nargs == -1 else 1))
    for one in draw(st.lists(st.sampled_from(options), max_size=3)) if options else ():
        line += [one.opts[0]] if getattr(one, "is_flag", False) else [one.opts[0], draw(value)]
    return line


def enough(*_: Any, **__: Any) -> Any:
    raise RunError("enough")


def child(line: list[str], wire: Connection) -> None:
    """Does what the command line says until training would begin; tells a fault, or nothing."""
    import uvicorn

    import covey.runs.run
    import covey.runs.study.execute
    import covey.runs.study.tuning

    covey.runs.run._go = enough  # type: ignore[assignment]
    covey.runs.study.execute.run_jobs = covey.runs.study.tuning.run_jobs = enough  # type: ignore[attr-defined]
    uvicorn.Server.run = lambda *_, **__: None
    os.chdir(scratch())
    signal.alarm(SECONDS)
    warnings.simplefilter("ignore")
    said, fault, code = io.StringIO(), "", 0
    sys.argv = ["covey", *line]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"
    if "Traceback (most recent call last)" in said.getvalue():
        fault = fault or said.getvalue()[-300:]
    wire.send((fault, "done" if code == 0 else "refused"))
    wire.close()
    os._exit(0)


def tried(line: list[str]) -> str:
    """What became of a command line; an AssertionError where it is a traceback."""
    context = mp.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(line, theirs))
    process.start()
    theirs.close()
    try:
        fault, became = ours.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGALRM:
            return "too long to tell"
        fault, became = f"the process died with code {process.exitcode}", ""
    finally:
        ours.close()
    process.join()
    assert not fault, fault
    return str(became)


def prepare() -> None:
    """What most commands import, and the files that they are given: once, before the processes are forked."""
    for name in (
        "report.live.serve",
        "report.page",
        "runs.advise",
        "runs.api",
        "runs.compare",
        "runs.models",
        "runs.results",
        "runs.study.tuning",
    ):
        importlib.import_module(f"covey.{name}")
    scratch()


def subjects() -> Iterator[Subject]:
    prepare()
    yield "command lines", command_lines(), tried


def main(cases: int, first: int) -> int:
    print(HEAD, flush=True)
    faults = fuzz(subjects(), cases, first, say=lambda line: print(line, flush=True))
    print("\n".join(faults[:40]) or "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
