"""A server and its sites in one process: messages are carried by hand, there is no network."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.data import federate, load
from covey.data.types import ClientShare
from covey.deploy.fleet import SiteFleet
from covey.deploy.site import Site
from covey.deploy.site_bounds import Bounds
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.transport import Response
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.training.models import build
from tests.deploy.one_request import SPEC

CLIENTS = 4


def shares() -> tuple[ClientShare, ...]:
    return DATA.shares


DATA = federate(load("digits"), partition="dir-class", clients=CLIENTS, seed=3, alpha=0.5)


@dataclass
class Hand:
    """A transport that carries the messages by hand; sites in `away` never answer."""

    sites: dict[int, Site]
    keys: dict[int, str] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    answers: dict[str, Response] = field(default_factory=dict)
    count: int = 0
    kinds: list[str] = field(default_factory=list)

    def nodes(self) -> dict[int, str]:
        return {node: self.keys.get(node, "") for node in self.sites}

    def expect(self, most: int) -> None:
        pass

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        numbers = {}
        for node, block in blocks.items():
            self.count += 1
            number = str(self.count)
            numbers[number] = node
            self.kinds.append(kind)
            if node not in self.away:
                self.answers[number] = Response(answer=self.sites[node].answer(block))
        return numbers

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        came = {number: self.answers.pop(number) for number in numbers if number in self.answers}
        too_large = Response(refused=f"its answer is larger than {most} bytes")
        return {n: response if len(response.answer) <= most else too_large for n, response in came.items()}


class Patient(Bounds):
    """Bounds without a clock: a test's deadline is short, so that it need not wait for who is away."""

    def in_time(self, wanted: float) -> contextlib.nullcontext[None]:  # type: ignore[override]
        return contextlib.nullcontext()


def sites(folder: Path | None = None, **settings: Any) -> dict[int, Site]:
    return {
        100 + i: Site(
            (share.train, share.test),
            name=f"site-{i}",
            folder=folder / str(i) if folder else None,
            **{"bounds": Patient(), **settings},
        )
        for i, share in enumerate(shares())
    }


def deployed(transport: Hand, **settings: Any) -> SiteFleet:
    usual: dict[str, Any] = {"names": ClientNumbers({}), "seed": 5, "deadline": 0.5, "least": CLIENTS}
    fleet = SiteFleet(transport, SPEC, server_data=DATA, **{**usual, **settings})
    fleet.model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
    return fleet


def simulated() -> LocalFleet:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
    return LocalFleet(DATA, model, seed=5, engine=Engine(mode="serial", lanes=False))
