"""`covey serve`: a run over real sites."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.cli.command import FleetOptions, Port
from covey.errors import UserError
from covey.settings.hosts import check_host
from covey.settings.own_code import file_and_name, is_file, load_file, one_sentence
from covey.terminal import live, say, with_times

if TYPE_CHECKING:
    from covey.data import Dataset
    from covey.data.schema import Schema
    from covey.deploy.fleet import SiteFleet
    from covey.deploy.status import Status
    from covey.deploy.status_page import PagePlace
    from covey.deploy.study import SiteStudy
    from covey.deploy.superlink import Link
    from covey.parts.steps.scale import TellScale
    from covey.runs.config import Config

PORT = 9440


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Where a run over real sites is kept, and how sites reach it.

    Args:
        resume: resume the run in this folder.
        or_resume: with --out: continue the run that the folder has already, if any. For services that are restarted.
        clients: sites to wait for. [default: data.clients]
        data: FILE.py:FUNCTION that returns the server's own test data. [default: data.name]
        host: where sites connect to.
        port: the only port to expose.
        status_port: a loopback port for the status page and /metrics.
        status_host: another address for the status page, which then needs --status-key.
        status_key: a file with a password that the status page asks a browser for.
        scale: standardise inputs by what the sites report, where the server's test data have no scale of their own.
        scale_epsilon: privacy loss of what a site reports for that, also of tables. [default: exact sums]
        scale_range: the agreed range of inputs that are not pictures, for --scale-epsilon: LOW HIGH.
        publish: write the signed study of this run to a file for the sites, and exit.
        set_: any setting: table.key=value. Repeatable.
    """

    out: Path | None = None
    resume: Path | None = None
    or_resume: bool = False
    clients: int | None = None
    data: str | None = None
    host: str = "0.0.0.0"
    port: Port = PORT
    certs: Path = Path("certs")
    status_port: Port | None = None
    status_host: str = "127.0.0.1"
    status_key: Path | None = None
    scale: bool = True
    scale_epsilon: float | None = None
    scale_range: tuple[float, float] | None = None
    insecure: bool = False
    publish: Path | None = None
    changed_code: bool = False
    set_: list[str] | None = None

    @property
    def secrets(self) -> Path | None:
        """The folder of certificates; none without TLS."""
        return None if self.insecure else self.certs

    @property
    def begun(self) -> Path | None:
        """The folder of a run that is continued."""
        goes_on = self.out is not None and self.or_resume and (self.out / "config.toml").exists()
        return self.out if goes_on else self.resume

    @property
    def again(self) -> str:
        """The options with which an interrupted run is resumed."""
        given = {"--data": self.data, "--certs": self.secrets, "--host": self.host, "--port": self.port}
        said = [f"{name} {value}" for name, value in given.items() if value is not None]
        return " ".join(said) + " --insecure" * self.insecure

    def check(self, file: Path | None) -> None:
        """Refuses options that do not go together."""
        if self.resume is not None and (file, self.out, self.set_) != (None, None, None):
            raise UserError("--resume uses the folder's own settings; it takes no file, --out or --set")
        if self.resume is None and self.changed_code:
            raise UserError("--changed-code goes with --resume: a new run begins with the code as it is")
        if self.or_resume and self.out is None:
            raise UserError("--or-resume needs --out: the folder in which the run begins, or is resumed")
        if self.resume is None and file is None:
            raise UserError("FILE is missing: a TOML file as for covey run, or --resume with a run's folder")

    def own_data(self) -> Dataset | None:
        """The server's own test data, where they are given."""
        from covey.data import Dataset

        own = None if self.data is None else loaded(self.data, "server")
        if own is not None and not isinstance(own, Dataset):
            raise UserError(
                f"--data {self.data} gave a {type(own).__name__}; it must give a Dataset (see from_tensors)"
            )
        return own

    def link(self, folder: Path) -> AbstractContextManager[Link]:
        """The SuperLink of this run."""
        from covey.deploy import superlink as links

        read_only = self.certs.exists() and not os.access(self.certs, os.W_OK)  # as a container's secrets are
        database = folder / "superlink" if self.insecure or read_only else self.certs
        return links.superlink(database, certs=self.secrets)


def serve(file: Path | None = None, *, options: ServeOptions) -> None:
    """Run a method over real sites: waits for them, checkpoints every round, resumes after a crash.

    Args:
        file: a TOML file as for covey run.
    """
    from covey.cli.run import interruptible, show
    from covey.data.schema import Schema
    from covey.deploy.superlink import need_flower
    from covey.files import for_their_owner, new_run_folder
    from covey.runs.run import resume, run_config, run_or_resume

    options.check(file)
    need_flower()
    config = served_config(file, options.resume, options.set_)
    secrets, begun = options.secrets, options.begun
    if options.publish is not None:
        publish_study(config, options.clients or config["data"]["clients"], secrets, options.publish)
        return
    folder = options.resume or options.out or new_run_folder(config.method_name)
    before = fleet_before(begun)
    least = options.clients or before.get("least") or config["data"]["clients"]
    own = options.own_data()
    scaling = asked_scale(options.scale_epsilon, options.scale_range) if options.scale else None
    page = page_place(options.status_port, options.status_host, options.status_key, secrets)
    place = place_of(options.host, options.port, options.insecure)
    told: dict[str, Any] = {
        "folder": folder,
        "page": page,
        "scaling": scaling,
        "before": Schema.from_plain(before["schema"]) if before.get("schema") else None,
    }
    # as Ctrl-C: the run is saved, and says how to resume
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        with_times(),
        for_their_owner(),  # checkpoints hold models
        options.link(folder) as link,
        live(config.method_name, config.top.rounds, every_round=True) as watch,
        interruptible(options.again),
        open_sites(config, link, secrets, place, least, own, **told) as fleet,
        fleet.status.recorded(
            fleet.farewell, run=folder.name, method=config.method_name, resumed=begun is not None
        ),
    ):
        watchers = [watch, fleet.status.round_ended]
        if options.resume is not None:
            changed = options.changed_code
            done = resume(folder, watchers=watchers, say=say, fleet=fleet, changed_code=changed)
        else:
            begin = run_or_resume if options.or_resume else run_config
            done = begin(config, folder, watchers=watchers, say=say, fleet=fleet)
    show([done])


def publish_study(config: Config, sites: int, certs: Path | None, file: Path) -> None:
    """The study as a file that a site can read before any server runs."""
    import json

    from covey.deploy.study import signed_study, study_in_words, study_of
    from covey.files import write_atomically

    study = study_of(config, sites)
    if study is None:
        raise UserError("--publish needs [sites] purpose and contact: what the run is for, and whom to ask")
    write_atomically(file, json.dumps(signed_study(study, certs).plain(), indent=1))
    for line in study_in_words(study):
        print(line)
    say(
        f"the signed study: {file}; a site reads it with: covey join {file} --show --ca ca.crt --key NAME.key"
    )


def place_of(host: str, port: int, insecure: bool) -> str:
    """HOST:PORT where sites connect to; without keys only on loopback."""
    check_host(host)
    return f"{'127.0.0.1' if insecure and host == '0.0.0.0' else host}:{port}"


def page_place(port: int | None, host: str, key: Path | None, certs: Path | None) -> PagePlace | None:
    """Where the status page goes, if anywhere."""
    from covey.cli.watch import secret_in
    from covey.deploy.status_page import PagePlace

    check_host(host, "--status-host")
    if port is None:
        if key is not None or host != "127.0.0.1":
            raise UserError("--status-host and --status-key go with --status-port")
        return None
    return PagePlace(port=port, host=host, key=secret_in(key, "--status-key") if key else "", certs=certs)


def served_config(file: Path | None, resume: Path | None, assignments: list[str] | None) -> Config:
    """The configuration of a deployment: a checkpoint after every round."""
    from covey.cli.run import gathered_tables
    from covey.runs.config import resolve
    from covey.settings.toml import read_tables

    if resume is not None:
        if not (resume / "config.toml").exists():
            raise UserError(f"--resume {resume} is not a run folder: it has no config.toml")
        return resolve(read_tables(resume / "config.toml"))
    tables = gathered_tables(file, FleetOptions(set_=assignments))
    return resolve({**tables, "checkpoint_seconds": 0.0})


def fleet_before(folder: Path | None) -> Mapping[str, Any]:
    """What the run in the folder knew of its sites at its last checkpoint: how many it waited for, their columns."""
    from covey.folder.checkpoint import load_checkpoint

    kept = load_checkpoint(folder) if folder is not None else None
    return kept.fleet if kept is not None else {}


@contextmanager
def open_sites(
    config: Config,
    link: Link,
    certs: Path | None,
    place: str,
    least: int,
    own: Dataset | None = None,
    *,
    folder: Path | None = None,
    page: PagePlace | None = None,
    scaling: TellScale | None = None,
    before: Schema | None = None,
) -> Iterator[SiteFleet]:
    """The fleet of the sites that join at this place; the door opens when all keys are known.

    Into the folder go the status and its log.
    """
    from covey.deploy.door import Door
    from covey.deploy.flower_transport import flower_run
    from covey.deploy.mailboxes import Mailboxes
    from covey.deploy.run import site_fleet
    from covey.deploy.site_list import SiteList
    from covey.deploy.status import Status
    from covey.deploy.status_page import status_shown

    sites = SiteList(certs) if certs else None
    for warning in (*sites.warnings(), *server_warning(certs)) if sites and certs else ():
        say(warning)
    host, _, port = place.rpartition(":")
    log = folder / "audit.jsonl" if folder else None
    status = Status(sites.listed, log, known=sites.known) if sites else Status(log=log)
    status.now.rounds = config.top.rounds
    study = told_study(config, least, certs, status)
    mailboxes, objection = Mailboxes(), sites.objection if sites else None
    with (
        flower_run(link, sites.registered if sites else dict, mailboxes, say) as transport,
        Door(
            link,
            certs,
            objection=objection,
            seen=status.visit,
            mailboxes=mailboxes,
            connections=status.connections,
        ).opened(host, int(port)),
        status_shown(status, folder, page) if folder else nullcontext(),
    ):
        secrets = "--key NAME.key --ca ca.crt" if certs else "--insecure --name NAME"
        say(
            f"sites join with: covey join HOST:{port} --data FILE.py:FUNCTION {secrets}, or with "
            "--table FILE --label COLUMN in place of --data"
        )
        yield site_fleet(
            config,
            transport,
            keys=sites or {},
            least=least,
            own=own,
            say=say,
            status=status,
            scaling=scaling,
            before=before,
            study=study,
        )


def told_study(config: Config, sites: int, certs: Path | None, status: Status) -> SiteStudy | None:
    """The study that sites must have approved, if the run is one; said, and written down."""
    from covey.deploy.study import signed_study, study_of

    study = study_of(config, sites)
    if study is None:
        return None
    study = signed_study(study, certs)
    status.event("study", name=study.says["name"], study=study.digest)
    say(f"study {study.says['name']} ({study.digest[:16]}): sites that have approved it participate")
    return study


def asked_scale(epsilon: float | None, limits: tuple[float, float] | None) -> TellScale:
    """What sites are asked to standardise inputs by."""
    from covey.parts.steps.privacy import Privacy
    from covey.parts.steps.scale import TellScale

    low, high = limits or (None, None)
    return TellScale(privacy=Privacy(epsilon=epsilon), low=low, high=high)


def server_warning(certs: Path) -> list[str]:
    """Warns in time that the server's certificate expires."""
    from covey.deploy.certs import expiry
    from covey.deploy.site_list import SOON

    left = (expiry(certs) - datetime.now(UTC)).days
    return [f"the server's certificate expires in {left} days; covey certs renew {certs} --server"] * (
        left < SOON
    )


def loaded(where: str, name: str) -> Any:
    """What FILE.py:FUNCTION returns; a function with an argument is given the site's name."""
    file, function = file_and_name(where)
    if not is_file(file):
        raise UserError(f"--data is {where!r}; it must be FILE.py:FUNCTION")
    if not Path(file).is_file():
        raise UserError(f"--data is {where!r}, but {file} does not exist")
    module = load_file(Path(file), f"--data {where}").module
    load = getattr(module, function, None)
    if not callable(load):
        raise UserError(f"--data is {where!r}, but {file} has no function {function}")
    with one_sentence(f"--data {where}"):
        return load(name) if inspect.signature(load).parameters else load()
