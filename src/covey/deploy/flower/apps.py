"""Covey as a Flower app: a ServerApp and a ClientApp for SuperLink and SuperNodes, and the mod that lets a foreign
ClientApp answer covey's questions about its data.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from covey.data.clients import as_dataset
from covey.data.types import Dataset, Samples
from covey.deploy.flower.grid import GridTransport, from_record, to_record
from covey.deploy.run import site_fleet
from covey.deploy.site import Site
from covey.deploy.site_bounds import check_budget
from covey.deploy.site_data import SiteData, SiteTable
from covey.deploy.site_memory import locked_folder
from covey.deploy.transport import HELLO
from covey.deploy.wire import step_kinds
from covey.files import new_run_folder
from covey.runs.config import Config
from covey.runs.run import run_config

AppAnswer = Callable[[Message, Context], Message]


def server_app(
    config: Config, *, folder: Path | None = None, say: Callable[[str], None] = print
) -> ServerApp:
    """A ServerApp that waits for `data.clients` nodes, runs the configuration's method and writes the run folder.

    The folder is `runs/NAME-TIME` where the SuperLink was started, if none is given.
    """
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        fleet = site_fleet(config, GridTransport(grid), keys={}, least=config["data"]["clients"], say=say)
        run_config(config, folder or new_run_folder(config.method_name), say=say, fleet=fleet)

    app.main()(main)
    return app


def client_app(
    load: Callable[[str], Any], *, budget: float | None = None, trust_server: bool = False
) -> ClientApp:
    """A ClientApp that answers every step of covey; `load` is told the node's `name` of its configuration.

    The node's `state` is the folder in which it keeps what a client remembers, also what it spent of its `budget`:
    the most privacy loss (epsilon) of one sample over all runs, as in `covey join --budget` (and `--trust-server`).
    """
    app = ClientApp()
    answer = answering(lambda context: load(name_of(context)), budget, trust_server)
    for kind in (*step_kinds(), HELLO):
        category, _, action = kind.partition(".")
        getattr(app, category)(action)(answer)
    return app


def portraits(
    load: Callable[[Context], Any], *, budget: float | None = None
) -> Callable[[Message, Context, AppAnswer], Message]:
    """A mod for a foreign ClientApp: `ClientApp(mods=[covey.flower.portraits(load)])`.

    It answers `Strategy`'s questions about the node's data (portraits, label histograms, sizes), and passes everything
    else on. `load` gives training data for the node's context: a (x, y) pair, a torch Dataset or DataLoader, a data
    frame or a covey Dataset. `budget` and the node's folder are as in `client_app`.
    """
    answer = answering(load, budget, trust_server=False)

    def mod(message: Message, context: Context, call_next: AppAnswer) -> Message:
        return answer(message, context) if "covey" in message.content else call_next(message, context)

    return mod


def answering(load: Callable[[Context], Any], budget: float | None, trust_server: bool) -> AppAnswer:
    """What answers covey's questions at a node."""
    check_budget(budget, trust_server)

    def answer(message: Message, context: Context) -> Message:
        name = name_of(context)
        folder = Path(str(context.node_config.get("state", f"covey-site-{name}")))
        with locked_folder(folder, wait=True):  # Flower may start a process for each message
            data = as_site_data(load(context))
            site = Site(data, name=name, folder=folder, budget=budget, trust_server=trust_server)
            return Message(to_record(site.answer(from_record(message.content))), reply_to=message)

    return answer


def as_site_data(data: Any) -> Any:
    """What a user's function gives, as a site takes it."""
    is_split = isinstance(data, tuple) and all(isinstance(part, Samples) for part in data)
    if is_split or isinstance(data, SiteData | SiteTable | Dataset):
        return data
    made = as_dataset(data)
    return replace(
        made, train=np.arange(len(made.x)), test=np.arange(0)
    )  # how it is tested is the app's affair


def name_of(context: Context) -> str:
    """The node's name, its place in a simulation, or its number."""
    config = context.node_config
    return str(config.get("name", config.get("partition-id", context.node_id)))
