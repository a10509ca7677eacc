"""Your own method, composed of named parts in a file."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from covey.core import Fact, Method, check_parts, gives_of, method, missing
from covey.core.needs import GROUPS, KNOWN_GROUPS, MODEL_PER_CLIENT, MODEL_PER_GROUP, SEVERAL_MODELS
from covey.parts.serving import ServeAdapted
from covey.parts.steps.train import Train
from covey.settings.catalogue import PARTS
from covey.settings.parts import GroupPart, PartOf, PartsOf, make_part

BankPart = Annotated[Any, PartOf("bank")]
SelectPart = Annotated[Any, PartOf("select")]
SendPart = Annotated[Any, PartOf("send", auto=True)]
Serve = Annotated[Any, PartOf("send")]
Local = Annotated[Any, PartOf("local")]
MixPart = Annotated[Any, PartOf("mix", auto=True)]
CombinePart = Annotated[Any, PartOf("combine")]
UpdatePart = Annotated[Any, PartOf("update")]
AfterParts = Annotated[Any, PartsOf("after")]


@method("compose", family="own")
def compose(
    train: Train,
    *,
    group: GroupPart = None,
    bank: BankPart = "one",
    select: SelectPart = "uniform",
    send: SendPart = "auto",
    local: Local = "train",
    mix: MixPart = "auto",
    combine: CombinePart = None,
    update: UpdatePart = None,
    serve: Serve = None,
    adapt: bool = False,
    after: AfterParts = (),
) -> Method:
    """A method composed of named parts, each an answer to one question; `covey parts` lists them.

    Without any setting it is FedAvg. `send = "auto"` sends every client the models that the bank has for it,
    `mix = "auto"` averages the replies (unless there is a `combine`). What parts need to be remembered of a round is
    added to `after`. A client uses the models that it would be sent, unless `serve` says others.

    Args:
        group: who is alike.
        bank: which models there are.
        select: who works.
        send: which models go out; auto sends what the bank has for the client.
        local: what a client does.
        mix: how the replies become the new models; auto averages them.
        combine: the same where no matrix can say it.
        update: what the server adds.
        serve: what a client uses, if not what it would be sent.
        adapt: clients train the model that serves them on their own data before they use it.
        after: what is remembered of a round.
    """
    making = Making({"train": train})
    step = making.given["step"] = making.part("local", local)
    if mix == "auto":
        mix = "average" if combine in (None, "none") else None
    mixing = making.given["exchange"] = making.part("mix", mix)
    models = making.part("bank", bank)
    sending = making.part("send", usual_send(models, mixing) if send == "auto" else send)
    making.given["send"] = sending
    serving = making.part("serve", serve, "send")
    return Method(
        name="compose",
        group=making.part("group", group),
        bank=models,
        select=making.part("select", select),
        send=sending,
        serve=serving,
        local=step,
        mix=mixing,
        combine=making.part("combine", combine),
        update=making.part("update", update),
        after=making.remembering(
            [making.part("after", each) for each in PartsOf("after").read("after", after)]
        ),
        adapt=train if adapt or isinstance(serving, ServeAdapted) else None,
    )


@dataclass(frozen=True)
class Making:
    """Parts made of their tables; one may be given what was made before it (`FILLED_IN`).

    Args:
        given: what parts may ask for, by its name.
        named: the parts by what they are called in a sentence.
    """

    given: dict[str, Any]
    named: dict[str, Any] = field(default_factory=dict)

    def part(self, kind: str, table: Any, registry: str = "") -> Any:
        """The part that a name or a table means; None where there is none."""
        read = PartOf(registry or kind).read(kind, table)
        if not isinstance(read, dict):
            return None
        part = make_part(registry or kind, read, self.given)
        self.named[f"{kind} {read['name']}"] = part
        return part

    def remembering(self, after: list[Any]) -> tuple[Any, ...]:
        """What is remembered of a round: as asked for, and what the parts need besides."""
        while lacking := next(
            ((fact, who) for fact, who in missing(self.named).items() if keeper_of(fact)), None
        ):
            fact, who = lacking
            after.append(make_part("after", {"name": keeper_of(fact)}, self.given))
            self.named[f"{who} (after {keeper_of(fact)})"] = after[-1]
        check_parts(self.named)
        return tuple(after)


def usual_send(bank: object, mix: object) -> str:
    """The way to send the models of a bank: each client gets its own, its group's, all of them, or the common one."""
    given = gives_of(bank)
    for fact, send in ((MODEL_PER_CLIENT, "owner"), (MODEL_PER_GROUP, "group"), (SEVERAL_MODELS, "all")):
        if fact in given:
            return send
    return "known-group" if KNOWN_GROUPS in gives_of(mix) else "everybody"


def keeper_of(fact: Fact) -> str:
    """The bookkeeping that gives a fact; empty where none does. Groups are a choice, and no bookkeeping."""
    if fact in (GROUPS, KNOWN_GROUPS):
        return ""
    return next((name for name, part in PARTS["after"].items() if fact in gives_of(part)), "")
