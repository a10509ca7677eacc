"""Your own method, composed of named parts in a file."""

from __future__ import annotations

from typing import Annotated, Any

from covey.core import Fact, Method, check_parts, gives_of, method, missing
from covey.core.needs import GROUPS, KNOWN_GROUPS, MODEL_PER_CLIENT, MODEL_PER_GROUP, SEVERAL_MODELS
from covey.parts.serving import ServeAdapted
from covey.parts.steps.train import Train
from covey.settings.catalogue import PARTS
from covey.settings.choices import Table
from covey.settings.parts import PartOf, PartsOf, make_part

Group = Annotated[Any, PartOf("group")]
Bank = Annotated[Any, PartOf("bank")]
Select = Annotated[Any, PartOf("select")]
Send = Annotated[Any, PartOf("send", auto=True)]
Serve = Annotated[Any, PartOf("send")]
Local = Annotated[Any, PartOf("local")]
Mix = Annotated[Any, PartOf("mix", auto=True)]
Combine = Annotated[Any, PartOf("combine")]
Update = Annotated[Any, PartOf("update")]
After = Annotated[Any, PartsOf("after")]


@method("compose", family="own")
def compose(
    train: Train,
    *,
    group: Group = None,
    bank: Bank = "one",
    select: Select = "uniform",
    send: Send = "auto",
    local: Local = "train",
    mix: Mix = "auto",
    combine: Combine = None,
    update: Update = None,
    serve: Serve = None,
    adapt: bool = False,
    after: After = (),
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
    tables = {
        "group": group,
        "bank": bank,
        "select": select,
        "local": local,
        "combine": combine,
        "update": update,
    }
    read = {kind: PartOf(kind).read(kind, table) for kind, table in tables.items()}
    sent, mixed = PartOf("send", auto=True).read("send", send), PartOf("mix", auto=True).read("mix", mix)
    named: dict[str, Any] = {}

    def made(kind: str, table: Table | str | None, registry: str = "") -> Any:
        if not isinstance(table, dict):
            return None
        part = make_part(registry or kind, table, given)
        named[f"{kind} {table['name']}"] = part
        return part

    given: dict[str, Any] = {"train": train}
    given["step"] = step = made("local", read["local"])
    if mixed == "auto":
        mixed = None if read["combine"] else PartOf("mix").read("mix", "average")
    given["exchange"] = mixing = made("mix", mixed)
    models = made("bank", read["bank"])
    if sent == "auto":
        sent = PartOf("send").read("send", usual_send(models, mixing))
    given["send"] = sending = made("send", sent)
    parts = {
        "group": made("group", read["group"]),
        "select": made("select", read["select"]),
        "combine": made("combine", read["combine"]),
        "update": made("update", read["update"]),
        "serve": made("serve", PartOf("send").read("serve", serve), "send"),
    }
    kept = [made("after", table) for table in PartsOf("after").read("after", after)]
    while lacking := next(((fact, name) for fact, name in missing(named).items() if keeper_of(fact)), None):
        fact, who = lacking
        kept.append(make_part("after", {"name": keeper_of(fact)}, given))
        named[f"{who} (after {keeper_of(fact)})"] = kept[-1]
    check_parts(named)
    at_home = train if adapt or isinstance(parts["serve"], ServeAdapted) else None
    return Method(
        name="compose",
        bank=models,
        send=sending,
        local=step,
        mix=mixing,
        after=tuple(kept),
        adapt=at_home,
        **parts,
    )


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
