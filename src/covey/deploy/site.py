"""A site: answers requests with the steps of its own covey, keeps its state on disk and its own privacy budget."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from covey.core import Client, Reply, Task
from covey.core.codec import named_from_bytes, reply_to_plain, to_bytes
from covey.core.privacy_loss import losses_of
from covey.data.schema import Schema
from covey.data.types import ClientShare, Dataset, Federation
from covey.deploy.audit import AUDIT_FILE as AUDIT
from covey.deploy.audit import Trail, finite_value, names_and_sizes
from covey.deploy.consent import Consent
from covey.deploy.frozen_parts import FrozenStore
from covey.deploy.privacy_account import PrivacyAccount, unusable
from covey.deploy.site_bounds import SAID, Bounds, check_budget, check_choice, check_counted
from covey.deploy.site_data import (
    COMPARED_FILE,
    FAILED_FILE,
    MOST_UNCOUNTED,
    NoisyColumns,
    SiteData,
    Uncounted,
    columns_mark,
    own_columns,
)
from covey.deploy.site_memory import Home, Memory, Work, question
from covey.deploy.transport import HELLO, SPOKEN, Span, agreed
from covey.deploy.wire import ModelSpec, model_from_plain, names_mark, step_from_plain
from covey.errors import Refused, UserError
from covey.fleet.work import Call, Job, Outcome, client_of, do
from covey.parts.steps.poison import Poisoned
from covey.parts.steps.scale import of_scale
from covey.parts.steps.served import SERVED_ROW
from covey.settings.own_code import bare_name, load_own
from covey.settings.registry import only_installed
from covey.terminal import LONGEST, printable
from covey.training.bench import Bench
from covey.training.bench.base import one_thread
from covey.training.pretrained.features import encoded
from covey.version import __version__

UNSAID = "its step failed; the site's own log says why"  # an error may quote data
RUN_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}")
NOTED = ("study", "run", "method", "round", "columns", "ended", "covey")  # of a request, for the audit trail
BENCHES_KEPT = 4  # models that are ready to work


class Site:
    """One client on its own machine."""

    version: ClassVar[str] = __version__
    speaks: ClassVar[Span] = SPOKEN

    def __init__(
        self,
        data: Any,
        *,
        name: str = "",
        folder: Path | None = None,
        budget: float | None = None,
        anchor: Path | None = None,
        trust_server: bool = False,
        allow: Sequence[str] = (),
        bounds: Bounds | None = None,
        ca: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.consent = Consent(folder, ca)
        budget = min((b for b in (budget, self.consent.budget) if b is not None), default=None)
        check_budget(budget, trust_server)
        # This site's own things that a server may ask for by their bare names.
        self.allowed = {bare_name(thing): thing for thing in allow}
        for thing in allow:
            load_own(thing, f"--allow {thing}")
        self.data = self.own = SiteData.of(data)
        self.schema: Any = None  # what the run says of the columns, as it came
        self.name = name
        self.folder = folder
        self.home = Home(folder, name) if folder is not None else None
        self.budget = budget
        # nothing leaves that the account does not count
        self.strict = budget is not None and not trust_server
        self.bounds = bounds or Bounds()
        self.say = say
        self.account = PrivacyAccount(folder, data=lambda: self.own.digest, budget=budget, anchor=anchor)
        self.account.unsaid = self.tell if self.strict else None
        self.columns = NoisyColumns(self.account, folder)
        sets = f"this site has held its table against {MOST_UNCOUNTED} sets of columns"
        self.compared = Uncounted(folder, COMPARED_FILE, sets)
        self.failed = Uncounted(folder, FAILED_FILE, f"{MOST_UNCOUNTED} questions have failed at this site")
        self.memory = Memory(folder, self.account)
        self.frozen = FrozenStore(folder, self.bounds)
        self.benches: dict[str, Bench] = {}
        self.encoded: dict[str, SiteData] = {}  # features of this site's data, by the encoder's digest
        self.left_out = ""
        self.unfit = ""  # why the table does not fit, as this site's log has it
        self.refused = ""  # what was said last, to a server that asks the same every few seconds
        self.run = ""  # that this site works for
        self.doing = ""  # the kind of what is asked
        self.spent = self.account.total()  # as the trail has it
        self.trail = None if folder is None else Trail(folder / AUDIT)
        if self.trail is not None:
            self.trail.note(
                "started", site=name, covey=self.version, budget=budget, trust_server=trust_server
            )

    def answer(self, block: bytes) -> bytes:
        """Answers one request, both as bytes; nothing in a request can run code, or raise anything here."""
        request: dict[str, Any] = {}
        self.doing = HELLO
        try:
            request = named_from_bytes(block)
            told = self._told(request)
            if self.strict and (told.get("lost") or told.get("mistake")):
                self.failed.count(question(request))
            self.note(request, told)  # first: what cannot be written down is not told
            self.refused = self.refused if "hello" in request else ""
            return to_bytes(told)
        except Refused as no:
            reason = said = str(no)
        except Exception as error:  # a server must not be able to stop a site
            reason = f"the request cannot be answered: {type(error).__name__}: {error}"
            said = UNSAID if self.strict else reason
            if self.strict and request:
                with contextlib.suppress(Refused):
                    self.failed.count(hashlib.sha256(block).hexdigest())
        reason, said = printable(reason), printable(said)
        if reason != self.refused:
            self.say(f"refused: {reason}")
            with contextlib.suppress(Refused):
                self.note(request, {}, refused=reason)
        self.refused = reason
        return to_bytes({"refused": said, **({"name": self.name} if "hello" in request else {})})

    def _told(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What is answered, as plain values."""
        agreed(request, "the server", self.speaks, self.version)
        if self.strict and ("step" in request or request.get("columns") == "sums"):
            self.failed.check()
        if "hello" not in request:
            with only_installed(self.allowed):
                if "frozen" in request:
                    self.doing = "query.frozen"
                    return self.frozen.answer(request["frozen"])
                return self._work(request)
        if "ended" in request:
            self.say(
                f"run {printable(str(request.get('run')))[:12]} has ended: {printable(str(request['ended']))}"
            )
            return {"name": self.name}
        self.consent.greeted(request.get("study"))
        self.hear(str(request.get("left_out", "")))
        if request.get("lanes") is True:
            self.make_ready_for_lanes()
        self.check_plan(request.get("plan"))
        if (asked := request.get("columns")) == "tell":
            exact = request.get("sums", True) is True
            return {"name": self.name, **own_columns(self.own, strict=self.strict, exact=exact)}
        if asked == "sums":
            return {"name": self.name, **self.columns.answer(request, self.fitting, self.own.digest)}
        self.work_with(request.get("schema"))
        return self.hello(sizes=request.get("sizes", True) is True)

    def tell(self, what: str) -> None:
        """For this site's own log alone."""
        self.say(printable(what))

    def note(self, request: Mapping[str, Any], told: Mapping[str, Any], **facts: Any) -> None:
        """A line of this site's audit trail: what was asked, the names and sizes of what is told, what it cost."""
        if self.trail is None:
            return
        asked = {name: request[name] for name in NOTED if name in request and is_plain(request[name])}
        spent = self.account.total()
        if spent != self.spent:
            facts |= {"epsilon": finite_value(spent - self.spent), "epsilon_in_all": finite_value(spent)}
        if told:
            facts["told"] = names_and_sizes(told.get("reply") or told)
        try:
            self.trail.note("refused" if "refused" in facts else "told", kind=self.doing, **asked, **facts)
        except OSError as error:
            raise unusable(error) from error
        self.spent = spent

    def hello(self, *, sizes: bool = True) -> dict[str, Any]:
        """What a site tells about itself: how many samples (0: it does not tell), of what shape; not what they are.

        A private run does not ask for sizes, and a site with a budget does not tell them.
        """
        samples = self.data.train_samples
        told = [len(samples), len(self.data.test_samples)] if sizes and not self.strict else [0, 0]
        return {
            "covey": self.version,
            "protocol": list(self.speaks),
            "name": self.name,
            "sizes": told,
            "shape": list(samples.dataset.x.shape[1:]),
            "classes": len(samples.dataset.classes),
            "labels": names_mark(samples.dataset.classes),
            "columns": names_mark(samples.dataset.features) if self.schema is not None else "",
            "audit": "" if self.trail is None else self.trail.head,
        }

    def check_plan(self, plan: Any) -> None:
        """Refuses a run that this site's budget cannot last for, as far as its steps say what they cost."""
        if not plan or self.budget is None:
            return
        step, rounds = step_from_plain(plan["step"]), int(plan["rounds"])
        told = losses_of(plan.get("beside", []))
        if getattr(step, "accounted", False) and hasattr(step, "planned"):
            told |= step.planned(len(self.data.train_samples), rounds)
        self.account.check_plan(told, rounds)

    def use(self, schema: Any) -> None:
        """The run's columns from here on; where it says none, this site's own."""
        if schema == self.schema:
            return
        try:
            self.data = self.own if schema is None else self.fitting(Schema.from_plain(schema))
        except UserError as error:
            raise Refused(str(error)) from error
        self.schema = schema

    def work_with(self, schema: Any) -> None:
        """As `use`, for an answer about the rows: with a budget a table's columns must be the run's."""
        self.use(schema)
        of_table = self.own.table is not None or self.own.dataset.schema is not None
        if self.strict and of_table and schema is None:
            raise Refused(
                "the run says nothing of the columns: this site's own rows would scale them, which no noise covers"
            )

    def fitting(self, schema: Schema) -> SiteData:
        """This site's data under the run's columns; with a budget only its own log says what does not fit."""
        if self.strict:
            self.compared.count(columns_mark(schema, self.own.digest))
        try:
            return self.own.under(schema)
        except Refused as no:
            if not self.strict:
                raise
            if self.unfit != (why := printable(str(no))):
                self.say(why)
            self.unfit = why
            raise Refused("its table does not fit the run's columns; the site's own log says why") from no

    def make_ready_for_lanes(self) -> None:
        """Has the kernels compiled before a deadline runs, which would end a compilation again in every round."""
        from covey.training.bench.lanes_bench import compile_kernels

        compile_kernels(self.say)

    def hear(self, left_out: str) -> None:
        """Says once why the server leaves this site out."""
        if left_out and left_out != self.left_out:
            self.say(f"the server leaves this site out: {printable(left_out)}")
        self.left_out = left_out

    def _work(self, request: Mapping[str, Any]) -> dict[str, Any]:
        step = step_from_plain(request["step"])
        self.doing = step.kind
        self.consent.asked(request)
        step = self._permitted(step)
        spec = model_from_plain(request["model"])
        self.work_with(request.get("schema"))
        self.account.lens = lens_of(spec, self.schema)
        own = self.data if spec.encoder is None else self.features(spec.encoder)
        check_model_fits(spec, own.train_samples.dataset)
        client, run = int(request["client"]), run_name(request)
        call = Call(
            step=step,
            seed=int(request["seed"]),
            round=int(request["round"]),
            names=tuple(request["names"]),
            live=True,
            account=self.account,
        )
        state = self.memory.open(run, str(request["session"]), call.round)
        if (known := self.memory.paid(run, request)) is not None:
            self.say(f"round {call.round}: {step.kind} as before, at no loss")
            return known
        drawn = self.account.drawn
        started, used = time.perf_counter(), time.process_time()
        task = Task(**request["task"])
        if self.strict:
            check_choice(step, task)
        # from the number of batches that is too many a server could work out the number of samples
        sizes = (SAID, SAID) if self.strict else (len(own.train_samples), len(own.test_samples))
        self.bounds.check_work(step, task, *sizes)
        with self.bounds.in_time(float(request.get("seconds", 0.0))), one_thread():
            job = Job(ids=(client,), tasks=(task,), states=(state,))
            data = own.scaled(spec.scale)
            bench = self._bench(spec)
            outcome = do(call, job, data, bench)[0]  # type: ignore[arg-type]
        seconds = time.perf_counter() - started
        self.consent.use(time.process_time() - used)
        answer = _plain_outcome(outcome, seconds, self.strict)
        kept = outcome.state.pop(SERVED_ROW, None)
        if outcome.reply is not None:
            worked = client_of(call, client, outcome.state, data, bench)  # type: ignore[arg-type]
            self._take_home(request, call, spec, task, outcome.reply, worked, kept)
        if not outcome.mistake:
            paid = outcome.reply is not None and self.account.drawn != drawn
            self.memory.close(run, outcome.state, (request, answer) if paid else None)
        if run != self.run:
            self.say(f"run {run[:12]}, {printable(str(request.get('method', 'a model of the method')))}")
        self.run = run
        self.say(f"round {call.round}: {step.kind} in {seconds:.2f} s{problem(outcome)}")
        return answer

    def _take_home(
        self,
        request: Mapping[str, Any],
        call: Call,
        spec: ModelSpec,
        task: Task,
        reply: Reply,
        client: Client,
        kept: Any,
    ) -> None:
        """Keeps the model that this site uses, as far as the work says which it is."""
        if self.home is None:
            return
        work = Work(
            run=run_name(request),
            method=printable(str(request.get("method", ""))),
            step=call.step,
            measures=(*call.names[:1], *call.names[2:3]) == ("measure", 1),
            task=task,
            reply=reply,
            client=client,
            spec=spec,
            network=partial(self._network, spec),
        )
        if (path := self.home.keep(work, kept)) is not None:
            self.say(f"this site's model of the run: {path}")

    def features(self, told: Mapping[str, Any]) -> SiteData:
        """This site's data as the run's encoder sees them; every picture goes through it once."""
        key = str(told["digest"])
        if key not in self.encoded:
            encoder = self.frozen.encoder(told)
            data = self.data.dataset
            parts = ClientShare(self.data.train_samples, self.data.test_samples, 0, self.name)  # type: ignore[arg-type]
            plain = Federation(replace(data, natural={}), (parts,), parts.test)
            try:
                made = encoded(plain, told["setting"], self.say, encoder=encoder, folder=self.folder)
            except UserError as error:
                self.tell(str(error))
                if self.strict:
                    self.failed.count(key)
                raise Refused(UNSAID if self.strict else str(error)) from error
            share = made.shares[0]
            self.encoded = {key: SiteData(train_samples=share.train, test_samples=share.test)}
        return self.encoded[key]

    def _bench(self, spec: ModelSpec) -> Bench:
        """The bench of a model; those used last are kept."""
        key = repr(spec)
        bench = self.benches.pop(key, None)
        if bench is None:
            self.bounds.check_model(spec)
            bench = spec.bench(self._network(spec))
        self.benches[key] = bench
        if len(self.benches) > BENCHES_KEPT:
            del self.benches[next(iter(self.benches))]
        return bench

    def _network(self, spec: ModelSpec) -> nn.Module:
        """The model with the frozen part that this site was sent."""
        try:
            model = spec.build()
            if spec.frozen:
                self.frozen.get(spec.frozen).put_into(model)
        except (UserError, ValueError) as error:
            raise Refused(str(error)) from error
        return model

    def _permitted(self, step: Any, *, within: bool = False) -> Any:
        """The step, and every step within it, under this site's rules and its own budget.

        `within` a step that the account counts, of which only what has noise leaves.
        """
        parts = {f.name: getattr(step, f.name) for f in fields(step)}
        step = replace(
            step,
            **{
                name: self._permitted(part, within=within or tells_nothing(step))
                for name, part in parts.items()
                if is_dataclass(part)
            },
        )
        self.consent.check_step(getattr(step, "kind", ""))
        if isinstance(step, Poisoned):
            raise Refused(f"{step.kind} is an attack, which is for simulations")
        if self.budget is not None and not within:
            check_counted(step, self.budget, trusted=not self.strict)
        return step  # the account keeps the budget


def check_model_fits(spec: ModelSpec, data: Dataset) -> None:
    """Refuses a model for samples of another shape, or one whose loss fails at some labels only."""
    if spec.shape != (ours := tuple(data.x.shape[1:])):
        raise Refused(f"the model takes samples of shape {spec.shape}, this site's have {ours}")
    classes = 0 if spec.child else len(data.classes)
    if spec.outputs < classes and spec.objective == "classification":
        raise Refused(f"the model has {spec.outputs} outputs, this site's data have {classes} classes")


def lens_of(spec: ModelSpec, schema: Any) -> str:
    """The digest of all by which a server can have the same samples look different: scale, encoder, columns."""
    return hashlib.sha256(to_bytes([of_scale(spec.scale), spec.encoder, schema])).hexdigest()


def run_name(request: Mapping[str, Any]) -> str:
    """What the run is called, which becomes the name of a file."""
    run = str(request["run"])
    if not RUN_NAME.fullmatch(run):
        raise Refused(f"the run is called {run!r}; at most 80 letters, digits, '.', '_' and '-' are allowed")
    return run


def is_plain(value: Any) -> bool:
    """Whether it is short enough for a line: a server may send anything."""
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= LONGEST)


def tells_nothing(step: Any) -> bool:
    """Whether only what has noise leaves of what is done within a step, or nothing at all."""
    return getattr(step, "accounted", False) or not getattr(step, "about_data", True)


def problem(outcome: Outcome) -> str:
    """What went wrong, for the log."""
    what = outcome.lost or outcome.refused or outcome.mistake
    return f" ({what})" if what else ""


def _plain_outcome(outcome: Outcome, seconds: float, strict: bool) -> dict[str, Any]:
    """What the server is told of a task's end."""
    reply = None if outcome.reply is None else reply_to_plain(outcome.reply)
    if reply is not None and strict:  # where only what is counted leaves, nobody is told a number of samples
        reply["size"] = int(reply["vector"] is not None or bool(reply["stats"]))
    return {
        "reply": reply,
        "lost": UNSAID if outcome.lost and strict else outcome.lost,
        "refused": outcome.refused,
        "mistake": UNSAID if outcome.mistake and strict else outcome.mistake,
        "seconds": 0.0 if strict else seconds,  # they would tell how many samples there are
    }
