"""Who is there: sites introduce themselves and get a client number that stays theirs."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from covey.core.codec import named_from_bytes
from covey.core.messages import is_whole
from covey.data.schema import Schema
from covey.deploy.status import Status
from covey.deploy.transport import HELLO, POLL, SPOKEN, Response, Transport, agreed, greeting
from covey.deploy.wire import ModelSpec, names_mark
from covey.errors import Refused, RunError
from covey.terminal import LONGEST, printable
from covey.version import __version__

HELLO_SECONDS = 10.0  # how long a new site has to introduce itself before the round continues without it
HELLO_BYTES = 2**16  # that a site may use to introduce itself
BACK = 15.0  # seconds that a round waits for a site that has lost its connection: it may open another one
AGAIN = 5.0  # seconds after which a site that was left out is asked again


@dataclass(kw_only=True)
class RegisteredSite:
    """A site that has introduced itself."""

    client: int
    name: str
    sizes: tuple[int, int]
    node: int
    protocol: int = SPOKEN[1]
    quiet: bool = False  # it missed a deadline and has not been heard of since


class ClientNumbers:
    """The client number of a site: by its key where keys are known, else by its name; the same for ever."""

    def __init__(self, by_key: Mapping[str, int]) -> None:
        self.by_key = by_key  # the list may change while the server runs
        self.keyed = bool(by_key)
        self.by_name: dict[str, int] = {}
        self.settled = False

    def number(self, key: str, name: str) -> int | None:
        if self.keyed:
            return self.by_key.get(key)
        return self.by_name.setdefault(name, len(self.by_name)) if name else None

    def listed(self) -> dict[int, str]:
        """The names of those who may join, by client number; nobody where there is no list."""
        names: Callable[[], Mapping[str, str]] = getattr(self.by_key, "names", dict)
        return {self.by_key[key]: name for key, name in names().items()}

    def settle(self) -> dict[int, int]:
        """Numbers the names that have come so far in their order, 2 before 10; gives the new number of each old one."""
        if self.keyed or self.settled:
            return {}
        self.settled = True
        old = self.by_name
        self.by_name = {name: number for number, name in enumerate(sorted(old, key=_natural))}
        return {number: self.by_name[name] for name, number in old.items()}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


@dataclass(kw_only=True, eq=False)
class SiteRegistry:
    """The sites of a run by client number. The run's children, with models of their own, share it.

    labels: the mark of the server's class names. hello_seconds: how long a message of introduction lives. sizes:
    whether sites are asked how many samples they have, which a private run does not. plan: the training of the run, by
    which a site sees whether its budget lasts. schema: of everybody's tables. study: as signed.
    """

    transport: Transport
    spec: ModelSpec
    names: ClientNumbers
    labels: str
    hello_seconds: float
    say: Callable[[str], None]
    sizes: bool = True
    status: Status = field(default_factory=Status)
    plan: Mapping[str, Any] | None = None
    schema: Schema | None = None
    study: Mapping[str, str] | None = None
    sites: dict[int, RegisteredSite] = field(default_factory=dict)
    greeted: dict[str, int] = field(default_factory=dict)  # messages of introduction that wait for an answer
    # why a node is not registered, and when to ask it again
    left_out: dict[int, tuple[str, float]] = field(default_factory=dict)

    def wait(self, least: int, patience: float, round: int) -> list[int]:
        """The clients that can be reached, once there are at least that many; patience is in seconds."""
        give_up = time.monotonic() + patience
        told = -1
        while len(here := self.reachable()) < least or self.in_doubt(here):
            if len(here) >= least:
                time.sleep(POLL)
                continue
            missing = self.missing(here)
            self.status.waiting(round, missing)
            if len(here) != told:
                alone = "; no other is on the list, and --clients waits for fewer" if self.names.keyed else ""
                others = f"; missing: {', '.join(missing)}" if missing else alone
                self.say(f"{len(here)} of {least} sites are here{others}")
                told = len(here)
            if time.monotonic() > give_up:
                raise RunError(f"round {round}: {len(here)} of {least} sites came in {patience:.0f} s")
            time.sleep(POLL)
        changed = self.names.settle()  # so that it does not matter who came first
        for site in self.sites.values():
            site.client = changed.get(site.client, site.client)
        self.sites = {site.client: site for site in self.sites.values()}
        return sorted(changed.get(client, client) for client in here)

    def missing(self, here: Sequence[int]) -> list[str]:
        """The sites that may join and are not here, where there is a list of them."""
        return [name for client, name in sorted(self.names.listed().items()) if client not in here]

    def reachable(self) -> list[int]:
        """The clients that are connected and were not quiet, after a look for new ones."""
        for line in self.status.news():
            self.say(line)
        nodes = self.transport.nodes()
        self.greet(nodes)
        # for a minute the SuperLink takes a site that was killed or shut out to be there
        dead = {client for client, seconds in self.status.cut_off().items() if seconds > BACK}
        there = [s for s in self.sites.values() if s.node in nodes and not s.quiet and s.client not in dead]
        return sorted(s.client for s in there if self.names.number(nodes[s.node], s.name) is not None)

    def in_doubt(self, here: Sequence[int]) -> bool:
        """Whether somebody has no connection, and has had none for so short a time that it may come back."""
        return bool(self.status.cut_off().keys() & set(here))

    def present(self, client: int) -> RegisteredSite | None:
        """The registered site of a client that can be asked."""
        site = self.sites.get(client)
        return None if site is None or site.quiet else site

    def greet(self, nodes: Mapping[int, str]) -> None:
        """Asks new and quiet nodes who they are; takes in what they answer, without holding up those that do not."""
        now = time.monotonic()
        # Whoever left and comes back may have mended what was wrong.
        self.left_out = {node: out for node, out in self.left_out.items() if node in nodes}
        known = {site.node for site in self.sites.values() if not site.quiet} | set(self.greeted.values())
        known |= {node for node, (_, again) in self.left_out.items() if again > now}
        new = [node for node in nodes if node not in known]
        if new:
            blocks = {node: self.introduction(self.why_out(node)) for node in new}
            self.greeted.update(self.transport.send(HELLO, blocks, self.hello_seconds))
        fresh = {number for number, node in self.greeted.items() if node in new}
        until = now + HELLO_SECONDS
        while self.greeted:
            for number, response in self.transport.collect(
                list(self.greeted), most=HELLO_BYTES, until=until
            ).items():
                node = self.greeted.pop(number)
                fresh.discard(number)
                self.take(node, nodes, response)
            if not fresh or time.monotonic() > until:
                break
            time.sleep(POLL)

    def introduction(self, left_out: str) -> bytes:
        """What a site is told before it says who it is; `left_out`: why it was not taken when it last did."""
        spec = self.spec
        return greeting(
            hello=True,
            sizes=self.sizes,
            lanes=spec.lanes,
            plan=self.plan,
            schema=self.schema.plain() if self.schema else None,
            study=self.study,
            time=time.time(),
            expects={"shape": list(spec.shape), "outputs": spec.outputs, "labels": self.labels},
            left_out=left_out,
        )

    def why_out(self, node: int) -> str:
        """Why the node was left out when it was last asked; empty if it was not."""
        return self.left_out[node][0] if node in self.left_out else ""

    def take(self, node: int, nodes: Mapping[int, str], response: Response) -> None:
        """Registers the node as the client that it is, or says why it is left out."""
        if response.error:  # it has gone; should it come back, it is greeted at once
            return
        hello, key = _hello(response), nodes.get(node, "")
        listed = self.names.by_key.get(key)
        # its key's name on the list, whatever it calls itself; its own where there is no list
        name = (self.names.listed().get(listed, "") if listed is not None else "") or str(
            hello.get("name", "")
        )
        why = hello.get("refused") or self.objection(hello, node, nodes)
        if why:
            if self.why_out(node) != why:  # it is said once
                self.tell_left_out(listed, name, why)
            self.left_out[node] = (why, time.monotonic() + AGAIN)
            return
        self.left_out.pop(node, None)
        client = self.names.number(key, hello["name"])
        assert client is not None
        back = client in self.sites
        sizes = (int(hello["sizes"][0]), int(hello["sizes"][1]))
        self.sites[client] = RegisteredSite(
            client=client, name=name, sizes=sizes, node=node, protocol=hello["protocol"]
        )
        as_client = f" as client {client}" if self.names.keyed or self.names.settled else ""
        with_covey = f" with covey {hello['covey']}" if hello["covey"] != __version__ else ""
        self.say(f"site {name} is {'back' if back else 'here'}{as_client}{with_covey}")
        self.status.seated(client, name, covey=hello["covey"], audit=hello["audit"])

    def tell_left_out(self, client: int | None, name: str, why: str) -> None:
        """Says it, and puts it into the status: under its name where it or its key says who it is."""
        self.say(f"{f'site {name}' if name else 'a site'} is left out for now: {why}")
        if client is not None:
            self.status.seated(client, name, why)
        else:
            self.status.event("left out", site=name, why=why)

    def objection(self, hello: Mapping[str, Any], node: int, nodes: Mapping[int, str]) -> str:
        """Why a site that introduced itself may not be registered; empty if it may."""
        if self.schema is not None and hello["columns"] != names_mark(self.schema.inputs):
            return "its covey does not compare columns by their names; install the server's version"
        shape, outputs = tuple(hello["shape"]), int(hello["classes"]) or 1
        fits = len(shape) == 3 if self.spec.encoder is not None else shape == self.spec.shape
        if not fits or outputs != self.spec.outputs:
            return (
                f"its samples have shape {shape} and {outputs} classes, the model is for {self.spec.shape} "
                f"and {self.spec.outputs}"
            )
        if hello["labels"] != self.labels:
            return "its classes have other names than the server's, or another order"
        client = self.names.number(nodes.get(node, ""), hello["name"])
        if client is None:
            return "neither its key nor its name is known"
        site = self.present(client)
        if site is not None and site.node != node and site.node in nodes:
            return "another site of this name is here"
        return ""


def _hello(response: Response) -> dict[str, Any]:
    """How a site introduced itself, every value of the type it should have, or why it did not."""
    if response.error or response.refused:
        return {"refused": printable(response.error or response.refused)}
    try:
        hello = named_from_bytes(response.answer)
        if "refused" in hello:
            name = printable(str(hello.get("name", "")))[:LONGEST]
            return {"refused": printable(str(hello["refused"])) or "it does not say why", "name": name}
        name, shape, classes, sizes = (hello[part] for part in ("name", "shape", "classes", "sizes"))
        if not isinstance(name, str) or len(name) > LONGEST or len(sizes) != 2:
            raise ValueError("its name is no text, or it does not tell two sizes")
        if not all(is_whole(number) and number >= 0 for number in (*shape, classes, *sizes)):
            raise ValueError("its shape, classes or sizes are not whole numbers from 0")
        return {
            "covey": printable(str(hello.get("covey"))),
            "protocol": agreed(hello, "it"),
            "name": printable(name),
            "shape": tuple(shape),
            "classes": classes,
            "labels": str(hello["labels"]),
            "columns": str(hello.get("columns", "")),
            "audit": printable(str(hello.get("audit", "")))[:64],
            "sizes": tuple(sizes),
        }
    except Refused as no:
        return {"refused": printable(str(no))}
    except (KeyError, TypeError, ValueError) as error:
        return {"refused": printable(f"its answer cannot be read: {type(error).__name__}: {error}")}
