"""Clustered sampling (Fraboni et al., 2021)."""

from dataclasses import replace

from covey.core import Method, method
from covey.methods.baselines import random
from covey.parts.selection.clustered_sampling import FromUrns, remember_sketches
from covey.parts.steps.train import Train
from covey.settings import inline


@method("clustered-sampling", family="selection", paper="https://arxiv.org/abs/2105.05883")
def clustered_sampling(train: Train, *, select: FromUrns = inline(FromUrns)) -> Method:
    """FedAvg on clients drawn from m urns, one from each: every client's expected weight is its share of the data.

    The urns hold clients of similar size (Algorithm 1), or clients whose last updates point alike (Algorithm 2, from a
    sketch of 512 numbers per client). The new model is the plain mean of the drawn models (Fraboni et al., 2021).
    """
    after = (remember_sketches,) if select.by == "similarity" else ()
    return replace(random(train), name="clustered-sampling", select=select, after=after)
