"""All methods; each is a short function that composes parts and reads like its paper."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from covey.settings.catalogue import METHODS

if TYPE_CHECKING:
    from covey.methods.apfl import apfl
    from covey.methods.auxo import auxo
    from covey.methods.baselines import centralized, fedavg, fedprox, local_only
    from covey.methods.cafa import abfa, cafa, cbcc, cbcc_select
    from covey.methods.cfic import cfic
    from covey.methods.cfl import cfl
    from covey.methods.cflgp import cfl_gp
    from covey.methods.clustered_sampling import clustered_sampling
    from covey.methods.compose import compose
    from covey.methods.covey import covey
    from covey.methods.embedding import embedding
    from covey.methods.fedala import fedala
    from covey.methods.fedamp import fedamp
    from covey.methods.feddisco import feddisco
    from covey.methods.feddrift import feddrift
    from covey.methods.feddyn import feddyn
    from covey.methods.fedfa import fedfa
    from covey.methods.fedgroup import fedgroup
    from covey.methods.fedgwc import fedgwc
    from covey.methods.fedmgda import fedmgda
    from covey.methods.fednova import fednova
    from covey.methods.fedrc import fedrc
    from covey.methods.fedsoft import fedsoft
    from covey.methods.fesem import fesem
    from covey.methods.flis import flis
    from covey.methods.flux import flux
    from covey.methods.haccs import haccs
    from covey.methods.ifca import ifca
    from covey.methods.ladd import ladd
    from covey.methods.mime import mime_lite
    from covey.methods.moon import moon
    from covey.methods.pacfl import pacfl
    from covey.methods.per_fedavg import per_fedavg
    from covey.methods.personal import ditto, fedbn, fedper, fedrep, fine_tuned
    from covey.methods.pfedme import pfedme
    from covey.methods.robust import krum, median, trimmed_mean
    from covey.methods.scaffold import scaffold
    from covey.methods.schedulers import oort, oort_simple, power_of_choice, random, tifl
    from covey.methods.selections import divfl, flips, hics, refl
    from covey.methods.server_optimisers import fedadagrad, fedadam, fedavgm, fedyogi
    from covey.methods.stale import fedasync, fedbuff
    from covey.methods.topologies import decentralized, hierarchical, semi_decentralized

__all__ = [
    "METHODS",
    "abfa",
    "apfl",
    "auxo",
    "cafa",
    "cbcc",
    "cbcc_select",
    "centralized",
    "cfic",
    "cfl",
    "cfl_gp",
    "clustered_sampling",
    "compose",
    "covey",
    "decentralized",
    "ditto",
    "divfl",
    "embedding",
    "fedadagrad",
    "fedadam",
    "fedala",
    "fedamp",
    "fedasync",
    "fedavg",
    "fedavgm",
    "fedbn",
    "fedbuff",
    "feddisco",
    "feddrift",
    "feddyn",
    "fedfa",
    "fedgroup",
    "fedgwc",
    "fedmgda",
    "fednova",
    "fedper",
    "fedprox",
    "fedrc",
    "fedrep",
    "fedsoft",
    "fedyogi",
    "fesem",
    "fine_tuned",
    "flips",
    "flis",
    "flux",
    "haccs",
    "hics",
    "hierarchical",
    "ifca",
    "krum",
    "ladd",
    "local_only",
    "median",
    "mime_lite",
    "moon",
    "oort",
    "oort_simple",
    "pacfl",
    "per_fedavg",
    "pfedme",
    "power_of_choice",
    "random",
    "refl",
    "scaffold",
    "semi_decentralized",
    "tifl",
    "trimmed_mean",
]

# Where each function lives; a file is imported when its method is first used, so that a run pays for one method only.
_HOMES = {place.partition(":")[2]: place.partition(":")[0] for place in METHODS.builtin.values()}


class _Methods(ModuleType):
    """Gives the function where a file has its name, too: `covey.methods.cafa` is CAFA, not the file that holds it."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'covey.methods' has no attribute {name!r}")
        function = getattr(import_module(_HOMES[name]), name)
        self.__dict__[name] = function
        return function

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):  # Python binds every file that it imports
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Methods
