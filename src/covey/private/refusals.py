"""Which methods can be private at which level: what a part shows the server that no noise covers, and what to use.

Parts go by their names in Python. A part of your own that only reads sums, and asks clients nothing, says so with
`of_sums = True`.
"""

from __future__ import annotations

from typing import Any

from covey.core import Method, each_reply
from covey.errors import UserError
from covey.private.settings import Level

# Parts that read sums as they read single replies; all that they make of them costs nothing more.
OF_SUMS = {
    "group": (),
    "bank": ("one_model", "one_per_group", "one_per_flock"),
    "select": ("Uniform", "Poisson", "Everybody", "EveryCluster", "EachGroup", "LargestGroup", "Equitable"),
    "send": ("to_everybody", "to_group"),
    "local": (
        *("Train", "TrainWithHome", "DittoTrain", "ContrastiveTrain", "MoreauTrain", "MixtureTrain"),
        *("MetaTrain", "LocalAggregationTrain"),
    ),
    "mix": ("Average", "GroupAverage"),
    "update": ("ServerMomentum", "ServerOptimiser"),
    "serve": ("to_everybody", "to_group"),
}

# What is told beside the updates, which no noise on them covers, and what to use.
ANY_GROUPS = 'use embedding with pretrain = "public", or haccs, whose groups come from noisy summaries'
COVEY = 'with covey set method.without = ["selection", "correction", "serving"], which need single replies'
SHOWN: dict[str, tuple[str, str]] = {
    "by_label": ("the exact label that stands out at every client", "set method.epsilon"),
    "LabelWhenChosen": (
        "the exact label that stands out at a client",
        "set method.lazy = false and method.epsilon",
    ),
    "LabelClusters": ("exact counts of every client's labels", ANY_GROUPS),
    "ByStyle": ("the exact mean amplitudes of every client's pictures", ANY_GROUPS),
    "AllModels": ("which model has the lowest loss on a client's data", ANY_GROUPS),
    "LastChoice": ("which model has the lowest loss on a client's data", ANY_GROUPS),
    "RandomStarts": ("which model has the lowest loss on a client's data", ANY_GROUPS),
    "remember_choices": ("which model has the lowest loss on a client's data", ANY_GROUPS),
    "WithinFlocks": ("every client's exact loss", COVEY),
    "ByUtility": ("every client's exact loss", 'use fedavg, or haccs with losses = "none"'),
    "ByPenalisedLoss": ("every client's exact loss", 'use fedavg, or haccs with losses = "none"'),
    "PowerOfChoice": ("every client's exact loss", 'use fedavg, or haccs with losses = "none"'),
    "FromUrns": (
        "a sketch of every client's update",
        "use cfic with epsilon, which samples from groups, too",
    ),
    "ScoredTrain": ("the exact accuracy of the model on every client's data", "use fedavg"),
    "TrainWithUtility": ("the exact loss of every client's samples", "use fedavg"),
    "JudgedTrain": ("exact losses on data that a client kept out", COVEY),
    "ServeAdapted": ("exact losses on data that a client kept out", COVEY),
    "ControlledTrain": ("a control variate of every client", "use fedavgm or fedadam"),
    "DynTrain": ("how far every client has moved", "use fedavgm or fedadam"),
    "WithControl": ("a control variate of every client", "use fedavgm or fedadam"),
    "WithMemory": ("how far every client has moved", "use fedavgm or fedadam"),
    "TellDiscrepancy": ("every client's exact label mix", "use fedavg"),
    "DiscoAverage": ("every client's exact label mix", "use fedavg"),
    "by_likeness": ("exact evaluations of each other's models", "use cbcc-select with epsilon, or embedding"),
    "ByAngles": ("directions in which every client's samples lie", ANY_GROUPS),
    "ByMoments": ("exact moments of every client's features", ANY_GROUPS),
    "ByInference": ("what every client's own model says of the server's samples", ANY_GROUPS),
    "ByGradients": ("every client's own gradient", ANY_GROUPS),
    "ByDecomposedCosine": ("single updates of every client before the first round", ANY_GROUPS),
    "ByRewards": ("single updates, whose likeness moves clients among cohorts", ANY_GROUPS),
    "ByDrift": ("every client's exact losses of all models", ANY_GROUPS),
    "ResponsibleTrain": ("how well each model fits a client's data", ANY_GROUPS),
    "SoftTrain": ("which model has the lowest loss on every sample of a client", ANY_GROUPS),
    "TrainWithCourse": ("the exact course of every client's loss", ANY_GROUPS),
    "ByMass": ("how well each model fits a client's data", ANY_GROUPS),
    "ByInteractions": ("the exact course of every client's loss", ANY_GROUPS),
    "SoftAverage": ("which model has the lowest loss on every sample of a client", ANY_GROUPS),
    "StaleAverage": ("single updates, one by one as they come", "use fedavg, whose rounds make sums"),
    "FreshAndLate": ("single updates, how far the late ones lie", "use fedavg, whose rounds make sums"),
    "ByEntropy": ("the bias of every client's update, and with it its label mix", "use fedavg"),
    "Diverse": ("a sketch of every client's update", "use cfic with epsilon"),
    "KeepBusy": ("single updates, one by one as they come", "use fedavg, whose rounds make sums"),
    "LeastAvailable": ("single updates that come late", "use fedavg, whose rounds make sums"),
    "NormalisedAverage": ("how many steps a client takes, which is its number of samples", "use fedavg"),
    "MimicTrain": ("a gradient of every client at the server's model", "use fedavgm or fedadam"),
    "WithMomentum": ("a gradient of every client at the server's model", "use fedavgm or fedadam"),
    "TrainNearCloud": (
        "every client's own model",
        "use a method with a common model, such as ditto or fedper",
    ),
    "note_spread": ("every client's own model", "use a method with a server, such as fedavg or embedding"),
    "the_server": ("all data: they lie at the server", "nothing is federated here: leave [private] out"),
    "remember_losses": ("every client's exact loss", 'set method.losses = "none"'),
    "remember_sketches": ("a sketch of every client's update", "use cfic with epsilon"),
}
JUDGED = "exact evaluations of each other's models; use cbcc with epsilon at the local or example level, or embedding"
# What needs single updates, which the client level hides.
SINGLE: dict[str, tuple[str, str]] = {
    "to_known_group": ("which group a client's own update puts it in", ANY_GROUPS),
    "Krum": (
        "single updates, of which it publishes one",
        "bad clients are bounded by the clip length: use fedavg",
    ),
    "Robust": (
        "single updates, which [robust] compares",
        "bad clients are bounded by the clip length: leave it out",
    ),
    "Median": ("single updates, number by number", "bad clients are bounded by the clip length: use fedavg"),
    "TrimmedMean": (
        "single updates, number by number",
        "bad clients are bounded by the clip length: use fedavg",
    ),
    "Clip": (
        "single updates, of which it needs the median length",
        'use fedavg with private.clip = "adaptive"',
    ),
    "NearestCentre": ("single updates, which find their nearest centre", ANY_GROUPS),
    "LikenessAverage": (
        "single updates, which count by their client's cluster",
        "use cbcc-select with epsilon, or embedding",
    ),
    "SplitAndAverage": ("single updates, whose angles split the clients", ANY_GROUPS),
    "CommonDescent": ("single updates, which it balances against each other", "use fedavg or cfic"),
    "FairAverage": ("single updates and accuracies", "use fedavg"),
    "keep_own": (
        "every client's own model",
        "nothing is averaged here that could hide anybody: leave [private] out",
    ),
    "Exchange": ("every client's own model", "use a method with a server, such as fedavg or embedding"),
    "one_per_client": ("every client's own model", "use a method with a server, such as fedavg or embedding"),
    "to_owner": ("every client's own model", "use a method with a server, such as fedavg or embedding"),
    "ClusterCorrection": ("directions of single clients", 'set method.directions = "clusters" or "average"'),
    "AdaptiveCorrection": (
        "directions of single clients",
        f'with cfic set method.directions = "clusters" or "average", {COVEY}',
    ),
}
REPLACEMENT = 'private.level = "local" or "example" puts the noise on every single update'


def check_private(method: Method, level: Level) -> None:
    """Refuses, in one sentence, a method that shows the server what the noise does not cover."""
    parts: list[tuple[str, Any]] = [
        (kind, getattr(method, kind))
        for kind in ("group", "combine", "mix", "select", "send", "serve", "bank", "local", "update")
        if getattr(method, kind) is not None
    ]
    parts += [("after", part) for part in method.after]
    for kind, part in parts:
        if why := objection(kind, part, level):
            raise UserError(f"method {method.name} cannot be private at the {level} level: {why}")
    if method.gather is not each_reply:
        raise UserError(f"method {method.name} gathers replies in a way of its own; leave [private] out")


def objection(kind: str, part: Any, level: Level) -> str:
    """What a part shows the server, and what to use; nothing where the noise covers it."""
    name = getattr(part, "__name__", type(part).__name__)
    if getattr(part, "of_sums", False) or name in OF_SUMS.get(kind, ()):
        return weights_objection(part)
    if name in SHOWN:
        what, remedy = SHOWN[name]
        return f"it would show the server {what}; {remedy}"
    if getattr(part, "by_accuracy", False):
        return f"it would show the server {JUDGED}"
    if kind == "group":
        return group_objection(part)
    if kind == "select":
        return selection_objection(part, name)
    if name == "AbsentRemembered":  # a sum that stands in for a missing one is a sum
        return objection(kind, part.update, level)
    if (
        name in ("ClusterCorrection", "AdaptiveCorrection")
        and part.among != "clients"
        and part.among != "auto"
    ):
        return (
            ""
            if part.per == "model"
            else f'it would show the server {SINGLE["Exchange"][0]}; set per = "model"'
        )
    if level != "client" and (
        kind in ("mix", "combine", "update", "bank", "send", "serve") or name in SINGLE
    ):
        return ""  # what is made of noisy updates costs nothing more
    if name in SINGLE:
        what, remedy = SINGLE[name]
        return f"it would show the server {what}; {remedy}; or {REPLACEMENT}"
    return f"nobody has said what its {kind} part {name} shows the server; use a part of covey's, or say of_sums = True"


def weights_objection(part: Any) -> str:
    """A weight that is a number of samples would be told beside the update."""
    if getattr(part, "weighting", "equal") == "batches":
        return 'it would show the server how many batches a client has; set method.weighting = "equal"'
    return ""


def group_objection(part: Any) -> str:
    """What clients tell so that they can be grouped."""
    pretrain = getattr(part, "pretrain", None)
    if pretrain is not None and pretrain.way != "public" and not pretrain.load:
        return (
            'its autoencoder would be trained on updates without noise; set method.pretrain = "public", or give '
            "method.encoder"
        )
    ask = next((getattr(part, name) for name in ("ask", "embed", "describe") if hasattr(part, name)), None)
    told = getattr(ask, "counted", getattr(getattr(ask, "privacy", None), "counted", False))
    if told or getattr(part, "epsilon", None) is not None:
        return ""
    if hasattr(ask, "privacy") and hasattr(ask, "flip"):
        return "clients would tell exact label counts or bits; set method.epsilon, and a method.flip above 0"
    return "clients would tell exact summaries of their data; set method.epsilon, or a method.flip above 0"


def selection_objection(part: Any, name: str) -> str:
    """What clients tell so that they can be chosen."""
    losses = getattr(part, "losses", None)
    if losses == "none":
        return ""
    if losses is not None:
        return 'it would show the server every client\'s exact loss; set method.losses = "none"'
    return f"nobody has said what its select part {name} shows the server; use a part of covey's, or say of_sums = True"
