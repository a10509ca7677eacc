"""The models that clients use, made again where a run folder does not store them: with the bits that were measured."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from covey.core.round import Method, served
from covey.errors import UserError
from covey.fleet.local import LocalFleet
from covey.fleet.used import rows_in_use
from covey.folder.checkpoint import Checkpoint
from covey.folder.read import read_config
from covey.folder.served_rows import facts_of
from covey.parts.steps.served import Serving, share_of
from covey.runs.config import Config, config_in, fleet_of
from covey.runs.objects import data_tables, given_data
from covey.runs.run import same_code
from covey.settings.catalogue import DATASETS, MODELS
from covey.settings.own_code import GIVEN
from covey.training.rows import Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class Remake:
    """A run's fleet as its last checkpoint has it, built when the first model is asked for."""

    folder: Path
    checkpoint: Checkpoint
    network: nn.Module
    data: Any = None
    changed_code: bool = False

    def __call__(self, client: int) -> tuple[int, float, Tensor]:
        """The slot, the share and the row that the client uses."""
        method, fleet = self._method, self._fleet
        state, serving = self.checkpoint.state, Serving.of(method)
        tasks = served(method, state, fleet, [client])
        for used in rows_in_use(fleet, serving, tasks, state.round):
            return used.slot, share_of(tasks[client], serving), used.row
        raise UserError(self.nowhere(str(client)))

    def nowhere(self, client: str) -> str:
        """Why there is no model of a client here."""
        if "run" in self.checkpoint.fleet:
            return (
                f"the model of {client} lies at that site and nowhere else: `covey model STATE` writes it there; an "
                "unseen client is given models[0]"
            )
        return f"client {client} has no model: its own part of it failed, or the method does not serve it"

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """How clients come by their models."""
        return facts_of(self._method, Layout.of(self.network, self._config["model"]["buffers"]))

    @cached_property
    def _config(self) -> Config:
        with self._objects():
            return config_in(self.folder)

    @cached_property
    def _method(self) -> Method:
        return self._config.method

    @cached_property
    def _fleet(self) -> LocalFleet:
        config = self._config
        if "run" in self.checkpoint.fleet:
            raise UserError(f"{self.folder} is of a run over real sites that has not come to its end")
        with self._objects():
            same_code(self.folder, config, self.checkpoint, self.changed_code)
            alone = Config(tables={**config.tables, "engine": {**config["engine"], "mode": "serial"}})
            fleet = fleet_of(alone, network=self.network)
        fleet.load(self.checkpoint.fleet)
        fleet.books.round = self.checkpoint.state.round
        return fleet

    @contextmanager
    def _objects(self) -> Iterator[None]:
        """The objects of a Python program that are given again, under the names that they had in the run."""
        _, tables = read_config(self.folder / "config.toml")
        model, data = tables["model"]["name"], tables["data"]["name"]
        if data.startswith(GIVEN):
            if self.data is None and data not in DATASETS.objects:
                raise UserError(
                    f"{self.folder}: the data were an object of a Python program, and models are made again with them; "
                    "give them: load_models(folder, data=...)"
                )
            if self.data is not None and data_tables(given_data(self.data))["data"]["name"] != data:
                raise UserError(f"data is not what the run had, {data}: its digest is another one")
        with MODELS.lent(model, self.network) if model.startswith(GIVEN) else nullcontext():
            yield
