"""How a simulation uses the machine: the settings of [engine]."""

from dataclasses import dataclass
from typing import Annotated, Literal

from covey.settings.ranges import Range
from covey.settings.signatures import only_with, validated_in
from covey.training.bench.choose import check_device
from covey.training.bench.cohort import Stacking

Mode = Literal["auto", "serial", "threads", "processes", "cohort", "wire", "ray"]


@validated_in("engine")
@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the simulation uses this machine, or a Ray cluster; changes speed and memory, never a result.

    Args:
        mode: auto is threads for the accelerated trainer, processes for PyTorch; cohort stacks clients on a GPU
            (equal up to rounding); wire turns every message into bytes and back; ray uses a Ray cluster.
        workers: how many; 0 is one per core.
        debug: one after another, errors raised in place.
        lanes: whether the fast CPU trainer is used where it supports the model.
        device: auto is the GPU when there is one.
        precision: mixed lets a cohort's layers compute in bfloat16; weights and their updates stay float32.
        compile: whether a cohort's step goes through torch.compile.
        megabytes: what the clients of a cohort that are trained at once may take of the device; 0 is half of what a GPU
            has free.
        address: of the Ray cluster; empty: RAY_ADDRESS, or else one that is started on this machine.
        gpus: the share of a GPU that a Ray worker takes: 0.25 is four workers on each.
        data: where Ray workers get the samples: store is Ray's object store, one copy per machine; shared is that every
            worker reads the files itself, from storage that all machines have.
        runtime_env: a TOML file with Ray's runtime_env for the workers (working_dir, pip, env_vars); empty: none.

    Examples:
        >>> covey.Engine(mode="serial").workers
        0
    """

    mode: Mode = "auto"
    workers: Annotated[int, Range(0, 1024)] = 0
    debug: bool = False
    lanes: bool = True
    device: str = "auto"
    precision: Literal["float32", "mixed"] = "float32"
    compile: bool = False
    megabytes: Annotated[int, Range(0, 1_000_000)] = 0
    address: str = ""
    gpus: Annotated[float, Range(above=0, most=8)] = 1.0
    data: Literal["store", "shared"] = "store"
    runtime_env: str = ""

    def __post_init__(self) -> None:
        stacked = self.mode == "cohort"
        only_with("engine", self, "precision compile megabytes", stacked, 'engine.mode = "cohort"')
        only_with("engine", self, "address gpus data runtime_env", self.mode == "ray", 'engine.mode = "ray"')
        if self.device != "auto":
            check_device(self.device)

    @property
    def stacking(self) -> Stacking:
        """How a cohort uses its device."""
        return Stacking(megabytes=self.megabytes, mixed=self.precision == "mixed", compiled=self.compile)

    def mode_for(self, trainer: str, device: str, workers: int) -> Mode:
        """The mode that is meant, once it is known what trains, where, and by how many."""
        alone = self.debug or workers == 1 or device != "cpu"
        if alone and self.mode not in ("wire", "cohort", "ray"):
            return "serial"
        if self.mode == "auto":
            return "threads" if trainer == "lanes" else "processes"
        return self.mode
