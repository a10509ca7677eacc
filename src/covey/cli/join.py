"""`covey join`: a site participates in a run with the data of its machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.cli.serve import loaded
from covey.errors import UserError
from covey.terminal import say, with_times

if TYPE_CHECKING:
    from covey.cli.consent import Server
    from covey.deploy.site_bounds import Bounds
    from covey.deploy.site_data import SiteTable


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """What a site gives, keeps and allows.

    Args:
        data: FILE.py:FUNCTION that returns the site's data.
        table: a CSV, Parquet or Excel file: the site's data without any code.
        label: with --table: the column to predict.
        exclude: with --table: a column that is not an input. Repeatable.
        key: this site's key, from covey certs.
        ca: the CA's certificate, from covey certs.
        name: this site's name. [default: the key's file name]
        state: where the site keeps its state.
        budget: the most privacy loss of this site, ever, as epsilon per sample (not per client); what cannot be
            counted is refused.
        anchor: a second folder in another place that records how much was told of these data, so that a deleted or
            restored --state is noticed. [default: none, and it goes unnoticed]
        trust_server: with --budget: let the server have updates and evaluations on test data without noise of this
            site's own, and numbers of samples, which the budget does not count.
        allow: FILE.py:NAME of a step, model, objective, metric or optimiser of your own that the server may ask for by
            NAME. Repeatable. [default: only what is installed here]
        most_passes: the most passes over this site's data that one request may ask for.
        most_parameters: the largest model that this site trains.
        most_seconds: the longest that one request may take.
        most_megabytes: the largest request that this site takes.
        show: print the server's study in plain words, and exit; HOST:PORT may be the study's file.
        approve: the name of the person who approves the study that --show showed; from then on this site answers
            nothing else. With --budget and --most-cpu, which then hold for it.
        most_cpu: with --approve: the most CPU seconds, in all, for the study.
        check: say whether network, version, clock, study, data, schema and budget fit, and exit.
    """

    data: str | None = None
    table: Path | None = None
    label: str | None = None
    exclude: list[str] | None = None
    key: Path | None = None
    ca: Path = Path("ca.crt")
    name: str | None = None
    state: Path = Path("covey-site")
    budget: float | None = None
    anchor: Path | None = None
    trust_server: bool = False
    allow: list[str] | None = None
    most_passes: float = 1000.0
    most_parameters: int = 2**28
    most_seconds: float = 3600.0
    most_megabytes: int = 4096
    show: bool = False
    approve: str | None = None
    most_cpu: float | None = None
    check: bool = False
    insecure: bool = False

    @property
    def looks(self) -> bool:
        """Whether the site only looks at the study, and does not participate."""
        return self.show or self.approve is not None

    @property
    def trusted(self) -> Path | None:
        """The CA's certificate; none without TLS."""
        return None if self.insecure else self.ca

    @property
    def called(self) -> str:
        called = self.name or (self.key.stem if self.key else "")
        if not called:
            raise UserError("--name is missing; without a key it tells the server which site this is")
        return called

    @property
    def bounds(self) -> Bounds:
        """What one request may ask for."""
        from covey.deploy.site_bounds import Bounds

        return Bounds(
            passes=self.most_passes,
            parameters=self.most_parameters,
            seconds=self.most_seconds,
            megabytes=self.most_megabytes,
        )

    def samples(self) -> Any:
        """The site's data."""
        return self.of_a_table(self.table) if self.table is not None else loaded(self.data or "", self.called)

    def of_a_table(self, file: Path) -> SiteTable:
        """The site's table; what was decided while it was read is said once."""
        from covey.deploy.site_data import SiteTable

        settings = {"exclude": tuple(self.exclude)} if self.exclude else {}
        found = SiteTable(source=file, label=self.label or "", settings=settings)
        for note in found.read().notes:
            say(note)
        return found

    def check_together(self) -> None:
        """Refuses options that do not go together."""
        if self.most_cpu is not None and (self.approve is None or not self.most_cpu > 0):
            raise UserError(f"--most-cpu is {self.most_cpu!r}; it goes with --approve, and must be above 0")
        if self.show + self.check + (self.approve is not None) > 1:
            raise UserError("give one of --show, --approve and --check")
        if (self.data is None) == (self.table is None) and not self.looks:
            raise UserError("give the site's data: --table FILE --label COLUMN, or --data FILE.py:FUNCTION")
        if (self.table is None) != (self.label is None) or (self.exclude and self.table is None):
            raise UserError("--table goes with --label, and --exclude with both")

    def check_address(self, address: str) -> None:
        """Refuses what is not an address, and without keys any but one of loopback."""
        from covey.deploy.superlink import LOOPBACK

        host, _, port = address.rpartition(":")
        of_file = self.looks and Path(address).is_file()
        if not of_file and (not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536):
            raise UserError(f"the address is {address!r}; it must look like HOST:PORT")
        if self.insecure and not of_file and host.strip("[]") not in LOOPBACK:
            raise UserError(f"--insecure works only on loopback; the address is {address!r}")

    def check_secrets(self) -> None:
        """Refuses missing keys, and budgets that mean nothing."""
        key, ca, budget = self.key, self.ca, self.budget
        if not self.insecure and (key is None or not key.exists() or not ca.exists()):
            missing = "--key is missing" if key is None else f"{ca if key.exists() else key} does not exist"
            raise UserError(f"{missing}; a site makes its own with: covey certs request NAME")
        if budget is not None and not 0 < budget < math.inf:
            raise UserError(f"--budget is {budget!r}; allowed: a number above 0")
        if self.anchor is not None and self.anchor.resolve().is_relative_to(self.state.resolve()):
            raise UserError(
                f"--anchor is {self.anchor}, which is deleted with --state {self.state}; give another place"
            )
        if self.trust_server and budget is None:
            raise UserError(
                "--trust-server needs --budget: without one the server is told everything it asks for"
            )


def join(address: str, *, options: JoinOptions) -> None:
    """Participate in a run with the data of this machine; only what is installed or allowed here ever runs here.

    Args:
        address: the server: HOST:PORT.
    """
    from covey.deploy.superlink import need_flower
    from covey.files import for_their_owner

    options.check_together()
    options.check_address(address)
    options.check_secrets()
    bounds = options.bounds
    need_flower()
    from covey.cli import consent
    from covey.deploy.certs import private_key
    from covey.deploy.connection import serve_site
    from covey.deploy.site import Site
    from covey.deploy.site_memory import locked_folder

    called, state, ca = options.called, options.state, options.trusted
    secret = None if options.insecure or options.key is None else private_key(options.key)
    server = consent.Server(address=address, ca=ca, key=secret, folder=state)
    if options.looks:
        with for_their_owner(), locked_folder(state):
            look_at(server, options)
        return
    if secret is not None:
        from covey.deploy.certs import public_text
        from covey.deploy.site_list import fingerprint

        say(f"this is {called}, with the key {fingerprint(public_text(secret.public_key()))}")
    samples = options.samples()
    with with_times(), for_their_owner(), locked_folder(state):  # states of runs hold models, too
        site = Site(
            samples,
            name=called,
            folder=state,
            budget=options.budget,
            anchor=options.anchor,
            trust_server=options.trust_server,
            allow=options.allow or (),
            bounds=bounds,
            ca=ca,
            say=say,
        )
        if options.check:
            consent.check(server, site)
            return
        most = bounds.megabytes * 2**20
        serve_site(address, site.answer, ca=ca, key=secret, folder=state, say=say, most=most)


def look_at(server: Server, options: JoinOptions) -> None:
    """Shows the study, or approves what was shown."""
    from covey.cli import consent

    if options.approve is None:
        consent.show(server)
    else:
        consent.approve(server, options.approve, options.budget, options.most_cpu)
