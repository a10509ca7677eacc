"""What a configuration file consists of: its tables, and the settings that stand outside them or are common to one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from covey.core.round import PATIENCE
from covey.data.federate import FEDERATED_BY
from covey.data.loading import LOADER_GIVEN
from covey.errors import UserError
from covey.settings.catalogue import TRACKERS
from covey.settings.choices import SeveralOf, own_settings
from covey.settings.ranges import Count, Natural, NotNegative, Range, Seed
from covey.settings.signatures import Setting, only_with, settings_of, validated, validated_in
from covey.training.adapters import ADAPTER
from covey.training.models import MODEL_SHAPES
from covey.training.pretrained import ENCODER
from covey.training.rows import BufferPolicy

# Arguments that the program fills in for what a table names; all others are the user's settings.
FILLED_IN_OF: Mapping[str, Collection[str]] = {
    "data": LOADER_GIVEN,
    "partition": FEDERATED_BY,
    "shift": FEDERATED_BY,
    "model": MODEL_SHAPES,
    "method": ("train",),
}

# The network for a data set when the file names none: the papers' usual choice.
USUAL_MODEL = {
    "digits": "mlp",
    "mnist": "lenet5",
    "fashion-mnist": "lenet5",
    "femnist": "lenet5",
    "emnist": "lenet5",
    "cifar10": "lenet5",
    "cifar100": "lenet5",
    "svhn": "lenet5",
    "pacs": "cnn-cifar",
    "emoji-names": "softmax",
    "encoder": "softmax",  # on features
    "motions": "cnn-series",
    "milton": "decoder",
    **dict.fromkeys(("table", "heart", "flights", "votes", "exams", "schools", "reading"), "tabular"),
}


@validated
@dataclass(frozen=True, kw_only=True)
class Top:
    """The settings outside every table.

    Args:
        name: of the run; empty: the method's.
        seed: of everything random.
        rounds: how many.
        objective: what is trained for: classification, next-token, regression, reconstruction, or your own.
        target: value of target_metric; rounds, seconds and bytes to it are reported.
        target_metric: any that is measured; empty: the objective's main one.
        target_on: global-test or local-test.
        stop_at_target: whether the run ends there.
        checkpoint_seconds: the least time between two checkpoints.
        checkpoints: how many are kept, to go back before what spoiled a run.
        patience: rounds in a row that may pass without an answer.
        tracker: what every round is logged to, as names or tables with a name and settings.
    """

    name: str = ""
    seed: Seed = 0
    rounds: Count = 50
    objective: str = "classification"
    target: float | None = None
    target_metric: str = ""
    target_on: Literal["global-test", "local-test"] = "global-test"
    stop_at_target: bool = False
    checkpoint_seconds: NotNegative = 2.0
    checkpoints: Annotated[int, Range(1, 1000)] = 3
    patience: Natural = PATIENCE
    tracker: Annotated[Sequence[Any], SeveralOf(TRACKERS)] = ()

    def __post_init__(self) -> None:
        only_with("", self, "target_metric target_on stop_at_target", self.target is not None, "target")


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """Which data, partitioned among how many clients.

    Args:
        name: of the data set.
        clients: how many; natural partitions may have their own number.
        test_fraction: share of a client's samples that are its local test data; none: from the global test set in
            its label mix.
        test_samples: how many of the global test set's samples the server measures on, evenly spaced; none: all.
        validation: share of a client's training data that stands in for its test data, to choose settings on; none:
            the test data are measured.
        encoder: a frozen network that every picture goes through once; what is trained takes its features. None: the
            pictures themselves.
        resplit: whether each seed draws its own test samples, as many as the data set has, by client and label or whole
            units; false: the data set's.
    """

    name: str = "digits"
    clients: Count = 20
    test_fraction: Annotated[float, Range(above=0, below=1)] | None = None
    test_samples: Count | None = None
    validation: Annotated[float, Range(above=0, below=1)] | None = None
    encoder: Annotated[Any, ENCODER] = None
    resplit: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """Which network.

    Args:
        name: of the network; usual is the papers' choice for the data set.
        buffers: what becomes of BatchNorm statistics: average or local.
        train: what trains of it, by patterns of parameter names or by modules, such as ["head", "*.bias"]; all else is
            frozen and travels once. Empty: whatever the network itself does not freeze.
        weights: a safetensors file with what the network begins with, such as an exported model; tensors of other names
            or shapes keep their start.
        adapter: a few numbers that train beside a frozen network: lora, or your own; `train` then names what else does.
    """

    name: str = "usual"
    buffers: BufferPolicy = "average"
    train: tuple[str, ...] = ()
    weights: str = ""
    adapter: Annotated[Any, ADAPTER] = None


@validated_in("sites")
@dataclass(frozen=True, kw_only=True)
class Sites:
    """What a run over real sites asks of them; a simulation does not use it.

    Args:
        quorum: how many sites must be there for a round to begin, and must train in it (all of them, where a method
            asks fewer); a round with fewer ends the run and is discarded. 0: a round counts however few
            answer.
        schema: what the columns of everybody's tables are: a JSON file that all have agreed on, or sites: found before
            the first round of what the sites tell. Empty: sites where the server's own test data are a table.
        purpose: what the run is for, in words: it is published as a study, signed, that every site must approve.
        contact: whom a site asks about it.
    """

    quorum: Natural = 0
    schema: str = ""
    purpose: str = ""
    contact: str = ""

    def __post_init__(self) -> None:
        if bool(self.purpose) != bool(self.contact):
            raise UserError(
                "sites.purpose and sites.contact go together: a study says what it is for and whom to ask"
            )


def settings_in(section: str, maker: Callable[..., Any]) -> dict[str, Setting]:
    """What a table can say of the thing that it names."""
    return settings_of(maker, given=FILLED_IN_OF.get(section, ()))


def model_settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """What `build` takes of the model's table beside its name: the network's own settings, and what trains of it."""
    common = {key: table[key] for key in ("train", "weights", "adapter") if table.get(key)}
    return {**own_settings(table, ModelSection), **common}
