"""Covey inside any Flower app: a ServerApp and a ClientApp to start with `flwr run`.

There the ClientApp comes with the app, as Flower users expect; `covey join` is for sites that run no server's code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from covey.deploy.fleet import SiteFleet
from covey.deploy.flower_transport import GridTransport
from covey.deploy.records import from_record, to_record
from covey.deploy.run import site_fleet
from covey.deploy.site import HELLO, Site
from covey.deploy.site_budget import check_budget
from covey.deploy.site_memory import locked_folder
from covey.deploy.wire import step_kinds
from covey.files import new_run_folder
from covey.runs.config import Config
from covey.runs.run import run_config


def server_app(
    config: Config, *, folder: Path | None = None, say: Callable[[str], None] = print
) -> ServerApp:
    """A ServerApp that waits for `data.clients` nodes, runs the configuration's method and writes the run folder.

    The folder is `runs/NAME-TIME` where the SuperLink was started, if none is given.
    """
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        fleet: SiteFleet = site_fleet(
            config, GridTransport(grid), keys={}, least=config["data"]["clients"], say=say
        )
        run_config(config, folder or new_run_folder(config.method_name), say=say, fleet=fleet)

    app.main()(main)
    return app


def client_app(
    load_data: Callable[[str], Any], *, budget: float | None = None, trust_server: bool = False
) -> ClientApp:
    """A ClientApp that answers every step of covey; `load_data` is told the node's `name` of its configuration.

    The node's `state` is the folder in which it keeps what a client remembers, also what it spent of its `budget`:
    the most privacy loss (epsilon) of one sample over all runs, as in `covey join --budget` (and `--trust-server`).
    """
    check_budget(budget, trust_server)
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        name = str(context.node_config.get("name", context.node_id))
        folder = Path(str(context.node_config.get("state", f"covey-site-{name}")))
        with locked_folder(folder, wait=True):  # Flower may start a process for each message
            site = Site(load_data(name), name=name, folder=folder, budget=budget, trust_server=trust_server)
            return Message(to_record(site.answer(from_record(message.content))), reply_to=message)

    for kind in (*step_kinds(), HELLO):
        category, _, action = kind.partition(".")
        getattr(app, category)(action)(answer)
    return app
