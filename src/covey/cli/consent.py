"""What `covey join` does before it participates: `--show` and `--approve` a study, `--check` whether this site fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.errors import Refused, RunError, UserError
from covey.terminal import say

if TYPE_CHECKING:
    from covey.deploy.site import Site

READING = "it only looks at the study for now"
GREETING_SECONDS = 120.0  # seconds for the server's first question


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a site reaches it. ca and key: none without TLS. folder: the site's own."""

    address: str
    ca: Path | None
    key: Any
    folder: Path

    def greeting(self) -> dict[str, Any]:
        """The first thing that the server asks, which is answered by a refusal."""
        from covey.core.codec import named_from_bytes, to_bytes
        from covey.deploy.connection import check_certificate, serve_site, trust

        try:
            if self.ca is not None:
                check_certificate(self.address, trust(self.ca), f"--ca {self.ca}")
        except OSError as error:
            raise RunError(f"{self.address} cannot be reached: {error}") from error
        heard: list[dict[str, Any]] = []
        until = time.monotonic() + GREETING_SECONDS

        def answer(block: bytes) -> bytes:
            request = named_from_bytes(block)
            if "hello" in request:
                heard.append(request)
            return to_bytes({"refused": READING})

        def enough() -> bool:
            return bool(heard) or time.monotonic() > until

        serve_site(self.address, answer, ca=self.ca, key=self.key, folder=self.folder, say=say, enough=enough)
        if not heard:
            raise RunError(
                f"{self.address} has asked nothing in {GREETING_SECONDS:.0f} s; its run may be under way"
            )
        return heard[0]


def show(server: Server) -> None:
    """Prints the server's study (or the one in a file) in plain words, and keeps it for `--approve`."""
    from covey.deploy.consent import keep_shown
    from covey.deploy.study import study_in_words, verified
    from covey.files import read_json

    file = Path(server.address)
    plain = read_json(file) if file.is_file() else server.greeting().get("study")
    if plain is None:
        raise RunError(f"{server.address} publishes no study: its file has no [sites] purpose")
    try:
        study = verified(plain, server.ca)
    except Refused as no:
        raise RunError(str(no)) from no
    keep_shown(server.folder, study)
    for line in study_in_words(study):
        print(line)
    say("to approve it, by a person's name: covey join ... --approve NAME")


def approve(server: Server, by: str, budget: float | None, cpu: float | None) -> None:
    """Writes down who approves the study that was shown last."""
    from covey.deploy.consent import approve as approved

    study = approved(server.folder, server.ca, by=by, budget=budget, cpu=cpu)
    say(
        f"{by} approved the study {study.says['name']} ({study.digest[:16]}); this site answers nothing else now"
    )


def check(server: Server, site: Site) -> None:
    """Says line by line whether this site could participate; exit code 1 where it could not."""
    started = time.monotonic()
    try:
        request = server.greeting()
    except (RunError, UserError) as error:
        print(f"network: NO: {error}")
        raise RunError("1 thing does not fit: network") from error
    print(f"network: yes, the server's question came after {time.monotonic() - started:.1f} s")
    wrong = []
    for name, look in CHECKS.items():
        try:
            print(f"{name}: yes, {look(site, request)}")
        except (Refused, UserError) as no:
            wrong.append(name)
            print(f"{name}: NO: {no}")
    if wrong:
        raise RunError(f"{len(wrong)} of {len(CHECKS) + 1} things do not fit: {', '.join(wrong)}")
    say("this site can participate")


def version(site: Site, request: Mapping[str, Any]) -> str:
    from covey.deploy.transport import agreed

    spoken = agreed(request, "the server", site.speaks, site.version)
    return f"covey {site.version} here, {request.get('covey')} at the server, protocol {spoken}"


def clock(site: Site, request: Mapping[str, Any]) -> str:  # noqa: ARG001
    from covey.deploy.http_connection import AHEAD, BEHIND

    ahead = time.time() - float(request.get("time", time.time()))
    if not -BEHIND < ahead < AHEAD:
        raise Refused(f"this machine's clock differs from the server's by {ahead:.0f} s")
    return (
        f"this machine's clock and the server's differ by {abs(ahead):.1f} s, including the time on the way"
    )


def study(site: Site, request: Mapping[str, Any]) -> str:
    site.consent.greeted(request.get("study"))
    found = site.consent.study
    return f"{found.says['name']}, approved by {site.consent.by}" if found else "the server publishes none"


def data(site: Site, request: Mapping[str, Any]) -> str:  # noqa: ARG001
    train, test = len(site.own.train_samples), len(site.own.test_samples)
    if not train:
        raise Refused("there is no sample to train on")
    return f"{train:,} samples to train on, {test:,} to test on"


def schema(site: Site, request: Mapping[str, Any]) -> str:
    from covey.deploy.wire import names_mark

    if "columns" in request:
        if site.own.dataset.schema is None:
            raise Refused("its samples have no column names to compare; join with --table")
        return f"{len(site.own.dataset.features)} inputs here; the sites have not agreed on their columns yet"
    site.use(request.get("schema"))
    dataset, expects = site.data.train_samples.dataset, request.get("expects") or {}
    shape = tuple(dataset.x.shape[1:])
    here = {
        "shape": list(shape),
        "outputs": len(dataset.classes) or 1,
        "labels": names_mark(dataset.classes),
    }
    for name, value in expects.items():
        if here.get(name) != value:
            raise Refused(f"the run's {name} is {value}, this site's {here.get(name)}")
    return f"samples of shape {shape}, {here['outputs']} outputs"


def budget(site: Site, request: Mapping[str, Any]) -> str:
    if site.budget is None:
        return "none is set"
    site.check_plan(request.get("plan"))
    return f"{site.account.total():.3g} of {site.budget:g} is spent (epsilon per sample), and the run's plan fits"


CHECKS: Mapping[str, Callable[[Site, Mapping[str, Any]], str]] = {
    "version": version,
    "clock": clock,
    "study": study,
    "data": data,
    "schema": schema,
    "budget": budget,
}
