"""All methods by name; each is a short function that composes parts and reads like its paper."""

from __future__ import annotations

from collections.abc import Callable

from covey.core import Method
from covey.methods.baselines import centralized, fedavg, fedprox, local_only
from covey.methods.cafa import abfa, cafa, cbcc, cbcc_select
from covey.methods.cfic import cfic
from covey.methods.cfl import cfl
from covey.methods.clustered_sampling import clustered_sampling
from covey.methods.compose import compose
from covey.methods.embedding import embedding
from covey.methods.feddisco import feddisco
from covey.methods.feddyn import feddyn
from covey.methods.fedfa import fedfa
from covey.methods.fedmgda import fedmgda
from covey.methods.haccs import haccs
from covey.methods.ifca import ifca
from covey.methods.ladd import ladd
from covey.methods.robust import krum, median, trimmed_mean
from covey.methods.schedulers import oort, oort_simple, power_of_choice, random, tifl
from covey.methods.topologies import decentralized, hierarchical, semi_decentralized

MethodMaker = Callable[..., Method]

METHODS: dict[str, MethodMaker] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "local": local_only,
    "centralized": centralized,
    "decentralized": decentralized,
    "hierarchical": hierarchical,
    "semi-decentralized": semi_decentralized,
    "haccs": haccs,
    "random": random,
    "tifl": tifl,
    "oort": oort,
    "oort-simple": oort_simple,
    "power-of-choice": power_of_choice,
    "cfic": cfic,
    "cfl": cfl,
    "feddisco": feddisco,
    "feddyn": feddyn,
    "fedfa": fedfa,
    "fedmgda": fedmgda,
    "clustered-sampling": clustered_sampling,
    "krum": krum,
    "trimmed-mean": trimmed_mean,
    "median": median,
    "cafa": cafa,
    "abfa": abfa,
    "cbcc": cbcc,
    "cbcc-select": cbcc_select,
    "embedding": embedding,
    "ifca": ifca,
    "ladd": ladd,
    "compose": compose,
}
