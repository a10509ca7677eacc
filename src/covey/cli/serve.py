"""`covey serve` and `covey join`: a run over real sites."""

from __future__ import annotations

import inspect
import math
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.cli.command import FleetOptions, Port
from covey.errors import UserError
from covey.settings.hosts import check_host
from covey.settings.own_code import is_file, load_file, one_sentence, split_name
from covey.terminal import live, say, with_times

if TYPE_CHECKING:
    from covey.data import Dataset
    from covey.data.schema import Schema
    from covey.deploy.fleet import SiteFleet
    from covey.deploy.site import SiteTable
    from covey.deploy.status import Status
    from covey.deploy.status_page import PagePlace
    from covey.deploy.study import Study
    from covey.deploy.superlink import Link
    from covey.parts.steps.scale import TellScale
    from covey.runs.config import Config

PORT = 9440


def serve(
    file: Path | None = None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    or_resume: bool = False,
    clients: int | None = None,
    data: str | None = None,
    host: str = "0.0.0.0",
    port: Port = PORT,
    certs: Path = Path("certs"),
    superlink: str | None = None,
    status_port: Port | None = None,
    status_host: str = "127.0.0.1",
    status_key: Path | None = None,
    scale: bool = True,
    scale_epsilon: float | None = None,
    scale_range: tuple[float, float] | None = None,
    insecure: bool = False,
    publish: Path | None = None,
    changed_code: bool = False,
    set_: list[str] | None = None,
) -> None:
    """Run a method over real sites: waits for them, checkpoints every round, resumes after a crash.

    Args:
        file: a TOML file as for covey run.
        resume: resume the run in this folder.
        or_resume: with --out: continue with this run where the folder has it already. For services that are restarted.
        clients: sites to wait for. [default: data.clients]
        data: FILE.py:FUNCTION that gives the server's own test data. [default: data.name]
        host: where sites connect to.
        port: the only port to expose.
        superlink: HOST:PORT of a running SuperLink that serves this run alone, with --isolation process and
            --enable-supernode-auth. [default: one is started]
        status_port: a port of loopback with the status page and /metrics.
        status_host: another address for the status page, which then needs --status-key.
        status_key: a file with a password that the status page asks a browser for.
        scale: standardise inputs by what the sites tell, where the server's test data have no scale of their own.
        scale_epsilon: privacy loss of what a site tells for that, also of tables. [default: exact sums]
        scale_range: the agreed range of inputs that are not pictures, for --scale-epsilon: LOW HIGH.
        publish: write the signed study of this run to a file for the sites, and end.
        set_: any setting: table.key=value. Repeatable.
    """
    from covey.cli.run import interruptible, show
    from covey.data import Dataset
    from covey.deploy import superlink as links
    from covey.deploy.secret_file import for_their_owner
    from covey.files import new_run_folder
    from covey.runs.run import resume as go_on
    from covey.runs.run import run_config, run_or_resume

    if resume is not None and (file, out, set_) != (None, None, None):
        raise UserError("--resume uses the folder's own settings; it takes no file, --out or --set")
    if resume is None and changed_code:
        raise UserError("--changed-code goes with --resume: a new run begins with the code as it is")
    if or_resume and out is None:
        raise UserError("--or-resume needs --out: the folder in which the run is begun, and gone on with")
    if resume is None and file is None:
        raise UserError("FILE is missing: a TOML file as for covey run, or --resume with a run's folder")
    links.need_flower()
    config = served_config(file, resume, set_)
    if publish is not None:
        publish_study(config, clients or config["data"]["clients"], None if insecure else certs, publish)
        return
    folder = resume or out or new_run_folder(config.method_name)
    begun = out if out is not None and or_resume and (out / "config.toml").exists() else resume
    least = clients or sites_before(begun) or config["data"]["clients"]
    own = None if data is None else loaded(data, "server")
    if own is not None and not isinstance(own, Dataset):
        raise UserError(
            f"--data {data} gave a {type(own).__name__}; it must give a Dataset (see from_tensors)"
        )
    secrets = None if insecure else certs
    scaling = asked_scale(scale_epsilon, scale_range) if scale else None
    page = page_place(status_port, status_host, status_key, secrets)
    place = listening(host, port, insecure)
    read_only = certs.exists() and not os.access(certs, os.W_OK)  # as a container's secrets are
    database = folder / "superlink" if insecure or read_only else certs
    opened = (
        links.existing(superlink, certs=secrets) if superlink else links.superlink(database, certs=secrets)
    )
    given = {"--data": data, "--certs": None if insecure else certs, "--host": host, "--port": port}
    again = " ".join(f"{name} {value}" for name, value in given.items() if value is not None)
    # as Ctrl-C: the run is saved, and says how to resume
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        with_times(),
        for_their_owner(),  # checkpoints hold models
        opened as link,
        live(config.method_name, config.top.rounds, every_round=True) as watch,
        interruptible(again + " --insecure" * insecure),
        open_sites(
            config,
            link,
            secrets,
            place,
            least,
            own,
            folder=folder,
            page=page,
            scaling=scaling,
            before=schema_before(begun),
        ) as fleet,
        fleet.status.recorded(
            fleet.farewell, run=folder.name, method=config.method_name, resumed=begun is not None
        ),
    ):
        watchers = [watch, fleet.status.round_ended]
        if resume is not None:
            done = go_on(folder, watchers=watchers, say=say, fleet=fleet, changed_code=changed_code)
        else:
            begin = run_or_resume if or_resume else run_config
            done = begin(config, folder, watchers=watchers, say=say, fleet=fleet)
    show([done])


def publish_study(config: Config, sites: int, certs: Path | None, file: Path) -> None:
    """The study as a file that a site can read before any server runs."""
    import json

    from covey.deploy.study import in_words, signed, study_of
    from covey.files import write_atomically

    study = study_of(config, sites)
    if study is None:
        raise UserError("--publish needs [sites] purpose and contact: what the run is for, and whom to ask")
    write_atomically(file, json.dumps(signed(study, certs).plain(), indent=1))
    for line in in_words(study):
        print(line)
    say(
        f"the signed study: {file}; a site reads it with: covey join {file} --show --ca ca.crt --key NAME.key"
    )


def listening(host: str, port: int, insecure: bool) -> str:
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
    from covey.cli.run import gathered
    from covey.runs.config import resolve
    from covey.settings.toml import read_tables

    if resume is not None:
        if not (resume / "config.toml").exists():
            raise UserError(f"--resume {resume} is not a run folder: it has no config.toml")
        return resolve(read_tables(resume / "config.toml"))
    tables = gathered(file, FleetOptions(set_=assignments))
    return resolve({**tables, "checkpoint_seconds": 0.0})


def sites_before(folder: Path | None) -> int | None:
    """How many sites the run in the folder waited for when it began."""
    from covey.folder.checkpoint import load_checkpoint

    kept = load_checkpoint(folder) if folder is not None else None
    return int(kept.fleet.get("least", 0)) or None if kept is not None else None


def schema_before(folder: Path | None) -> Schema | None:
    """What the columns of the sites' tables are in the run in the folder."""
    from covey.data.schema import Schema
    from covey.folder.checkpoint import load_checkpoint

    kept = load_checkpoint(folder) if folder is not None else None
    told = kept.fleet.get("schema") if kept is not None else None
    return Schema.from_plain(told) if told else None


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
    from covey.deploy.door import door
    from covey.deploy.flower_transport import flower_run
    from covey.deploy.mailboxes import Mailboxes
    from covey.deploy.run import site_fleet
    from covey.deploy.site_list import SiteList
    from covey.deploy.status import Status
    from covey.deploy.status_page import shown

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
        door(
            host,
            int(port),
            link,
            certs,
            objection=objection,
            seen=status.visit,
            mailboxes=mailboxes,
            connections=status.connections,
        ),
        shown(status, folder, page) if folder else nullcontext(),
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


def told_study(config: Config, sites: int, certs: Path | None, status: Status) -> Study | None:
    """The study that sites must have approved, if the run is one; said, and written down."""
    from covey.deploy.study import signed, study_of

    study = study_of(config, sites)
    if study is None:
        return None
    study = signed(study, certs)
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
    """Says in time that the server's certificate ends."""
    from covey.deploy.certs import expiry
    from covey.deploy.site_list import SOON

    left = (expiry(certs) - datetime.now(UTC)).days
    return [f"the server's certificate ends in {left} days; covey certs renew {certs} --server"] * (
        left < SOON
    )


def join(
    address: str,
    *,
    data: str | None = None,
    table: Path | None = None,
    label: str | None = None,
    exclude: list[str] | None = None,
    key: Path | None = None,
    ca: Path = Path("ca.crt"),
    name: str | None = None,
    state: Path = Path("covey-site"),
    budget: float | None = None,
    trust_server: bool = False,
    allow: list[str] | None = None,
    most_passes: float = 1000.0,
    most_parameters: int = 2**28,
    most_seconds: float = 3600.0,
    most_megabytes: int = 4096,
    show: bool = False,
    approve: str | None = None,
    most_cpu: float | None = None,
    check: bool = False,
    insecure: bool = False,
) -> None:
    """Participate in a run with the data of this machine; only what is installed or allowed here ever runs here.

    Args:
        address: the server: HOST:PORT.
        data: FILE.py:FUNCTION that gives the site's data.
        table: a CSV, Parquet or Excel file: the site's data without any code.
        label: with --table: the column to predict.
        exclude: with --table: a column that is no input. Repeatable.
        key: this site's key, from covey certs.
        ca: the CA's certificate, from covey certs.
        name: this site's name. [default: the key's file name]
        state: where the site keeps its state.
        budget: the most privacy loss of this site, ever, as epsilon per sample (not per client); what cannot be
            counted is refused.
        trust_server: with --budget: let the server have updates and evaluations on test data without noise of this
            site's own, and numbers of samples, which the budget does not count.
        allow: FILE.py:NAME of a step, model, objective, metric or optimiser of your own that the server may ask for by
            NAME. Repeatable. [default: only what is installed here]
        most_passes: the most passes over this site's data that one request may ask for.
        most_parameters: the largest model that this site trains.
        most_seconds: the longest that one request may take.
        most_megabytes: the largest request that this site takes.
        show: print the server's study in plain words, and end; HOST:PORT may be the study's file.
        approve: the name of the person who approves the study that --show showed; from then on this site answers
            nothing else. With --budget and --most-cpu, which then hold for it.
        most_cpu: with --approve: the most CPU seconds, in all, for the study.
        check: say whether network, version, clock, study, data, schema and budget fit, and end.
    """
    from covey.deploy.secret_file import for_their_owner
    from covey.deploy.site_bounds import Bounds
    from covey.deploy.superlink import LOOPBACK, need_flower

    if most_cpu is not None and (approve is None or not most_cpu > 0):
        raise UserError(f"--most-cpu is {most_cpu!r}; it goes with --approve, and must be above 0")
    if show + check + (approve is not None) > 1:
        raise UserError("give one of --show, --approve and --check")
    asks = show or approve is not None
    if (data is None) == (table is None) and not asks:
        raise UserError("give the site's data: --table FILE --label COLUMN, or --data FILE.py:FUNCTION")
    if (table is None) != (label is None) or (exclude and table is None):
        raise UserError("--table goes with --label, and --exclude with both")
    host, _, port = address.rpartition(":")
    of_file = asks and Path(address).is_file()
    if not of_file and (not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536):
        raise UserError(f"the address is {address!r}; it must look like HOST:PORT")
    if insecure and not of_file and host.strip("[]") not in LOOPBACK:
        raise UserError(f"--insecure works only on loopback; the address is {address!r}")
    if not insecure and (key is None or not key.exists() or not ca.exists()):
        missing = "--key is missing" if key is None else f"{ca if key.exists() else key} does not exist"
        raise UserError(f"{missing}; a site makes its own with: covey certs request NAME")
    if budget is not None and not 0 < budget < math.inf:
        raise UserError(f"--budget is {budget!r}; allowed: a number above 0")
    if trust_server and budget is None:
        raise UserError("--trust-server needs --budget: without one the server is told all that it asks for")
    bounds = Bounds(
        passes=most_passes, parameters=most_parameters, seconds=most_seconds, megabytes=most_megabytes
    )
    need_flower()
    from covey.deploy.certs import private_key
    from covey.deploy.connection import serve_site
    from covey.deploy.site import Site
    from covey.deploy.site_memory import locked_folder

    called = name or (key.stem if key else "")
    if not called:
        raise UserError("--name is missing; without a key it tells the server which site this is")
    secret = None if insecure or key is None else private_key(key)
    if asks:
        from covey.cli import consent

        server = consent.Server(address=address, ca=None if insecure else ca, key=secret, folder=state)
        with for_their_owner(), locked_folder(state):
            if approve is None:
                consent.show(server)
            else:
                consent.approve(server, approve, budget, most_cpu)
        return
    if secret is not None:
        from covey.deploy.certs import public_text
        from covey.deploy.site_list import fingerprint

        say(f"this is {called}, with the key {fingerprint(public_text(secret.public_key()))}")
    samples = of_a_table(table, label, exclude or ()) if table is not None else loaded(data or "", called)
    with with_times(), for_their_owner(), locked_folder(state):  # states of runs hold models, too
        site = Site(
            samples,
            name=called,
            folder=state,
            budget=budget,
            trust_server=trust_server,
            allow=allow or (),
            bounds=bounds,
            ca=None if insecure else ca,
            say=say,
        )
        if check:
            from covey.cli import consent

            consent.check(
                consent.Server(address=address, ca=None if insecure else ca, key=secret, folder=state), site
            )
            return
        serve_site(
            address,
            site.answer,
            ca=None if insecure else ca,
            key=secret,
            folder=state,
            say=say,
            most=bounds.megabytes * 2**20,
        )


def of_a_table(file: Path, label: str | None, exclude: Sequence[str]) -> SiteTable:
    """The site's table; what was decided while it was read is said once."""
    from covey.deploy.site import SiteTable

    found = SiteTable(source=file, label=label or "", settings={"exclude": tuple(exclude)} if exclude else {})
    for note in found.read().notes:
        say(note)
    return found


def loaded(where: str, name: str) -> Any:
    """What FILE.py:FUNCTION gives; a function with an argument is told the site's name."""
    file, function = split_name(where)
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
