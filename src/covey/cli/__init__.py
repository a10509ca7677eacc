"""The command line. PyTorch is imported only by commands that compute, so that help answers at once."""

# ruff: noqa: E402
import atexit
import gc
import io
import sys
import warnings
from typing import Annotated, Any

# Hardly anything that is imported is ever garbage: looking for it a hundred times takes a tenth of the start, and once
# more at the very end a third of a second.
gc.set_threshold(20_000, 20, 20)
atexit.register(gc.freeze)

import typer

from covey.cli import (
    advise,
    audit,
    certs,
    convert,
    demo,
    doctor,
    health,
    join,
    lists,
    look,
    model,
    predict,
    privacy,
    report,
    run,
    serve,
    status,
    study,
    topology,
    watch,
)
from covey.cli.command import add
from covey.errors import RunError, UserError
from covey.files import reason
from covey.settings.own_code import own_place, said
from covey.terminal import say, uncontrolled
from covey.version import __version__

USERS_MISTAKE = 2
INTERRUPTED = 130
SHOWN = warnings.showwarning

# The library names what is wrong by its argument; on the command line that is an option.
OPTIONS = {"folder": "--out", "scale": "--scale", "seeds": "--seeds", "setting": "--set"}

app = typer.Typer(
    name="covey",
    help="Federated learning for heterogeneous clients.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
add(app, run.run, run.compare, demo.demo, study.sweep, study.tune, advise.advise)
add(app, lists.methods, lists.parts, lists.datasets, lists.partitions, lists.shifts, lists.models)
add(app, look.look, predict.predict, model.model, predict.export, convert.convert, topology.topology)
add(app, privacy.privacy, report.report, watch.watch)
app.add_typer(certs.app, name="certs")
add(app, serve.serve, join.join, status.status, audit.audit, health.health, doctor.doctor)


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", help="Print covey's version.", is_eager=True)] = False,
) -> None:
    """Federated learning for heterogeneous clients."""
    if version:
        print(__version__)
        raise typer.Exit


def main(command: typer.Typer | None = None) -> None:
    """Runs the command line; a user's mistake is one sentence and exit code 2, an interrupt 130."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a name shows the others
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = as_a_line
    try:
        (command or app)()
    except (UserError, RunError) as mistake:
        print(f"covey: {uncontrolled(in_options(str(mistake)))}", file=sys.stderr)
        sys.exit(USERS_MISTAKE if isinstance(mistake, UserError) else 1)
    except KeyboardInterrupt:
        print("covey: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `covey methods | head`
        sys.exit(0)
    except Exception as error:
        if own_place(error):  # a mistake in somebody's own file
            sentence, code = said(error), USERS_MISTAKE
        elif isinstance(error, OSError):
            sentence, code = reason(error), 1
        else:
            raise
        print(f"covey: {uncontrolled(sentence)}", file=sys.stderr)
        sys.exit(code)


def as_a_line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning without file and line: on the command line there is no line of the user's that it could point to."""
    if category is UserWarning:
        say(str(message))
    else:
        SHOWN(message, category, *place, **more)


def in_options(sentence: str) -> str:
    """The sentence with the option in place of the argument that it begins with."""
    first, space, rest = sentence.partition(" ")
    return OPTIONS.get(first, first) + space + rest
