"""FedAvg with Krum (Blanchard et al., 2017), trimmed mean or median (Yin et al., 2018) in place of the mean."""

from dataclasses import replace

from covey.core import Method, method
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.mix.robust import Krum, Median, TrimmedMean
from covey.parts.steps.train import Train
from covey.settings import Count, inline


@method("krum", family="robust", paper="https://arxiv.org/abs/1703.02757")
def krum(train: Train, *, per_round: Count = 10, mix: Krum = inline(Krum)) -> Method:
    """The reply that lies closest to its neighbours becomes the model (Blanchard et al., 2017).

    Its score is the sum of squared distances to the n - f - 2 nearest replies, f = `hostile`. With `keep` above 1 that
    many of the best are averaged equally (multi-Krum). It withstands f of n >= 2 f + 3 replies.
    """
    if per_round < mix.fewest():
        raise UserError(
            f"hostile is {mix.hostile}, of which Krum needs {mix.fewest()} clients in a round to withstand them; "
            f"per_round is {per_round}"
        )
    return replace(fedavg(train, per_round=per_round), name="krum", mix=mix)


@method("trimmed-mean", family="robust", paper="https://arxiv.org/abs/1803.01498")
def trimmed_mean(
    train: Train, *, per_round: Count = 10, combine: TrimmedMean = inline(TrimmedMean)
) -> Method:
    """Each parameter is the mean of the replies without the share `trim` at either end (Yin et al., 2018)."""
    return replace(fedavg(train, per_round=per_round), name="trimmed-mean", mix=None, combine=combine)


@method("median", family="robust", paper="https://arxiv.org/abs/1803.01498")
def median(train: Train, *, per_round: Count = 10) -> Method:
    """Each parameter is the median of the replies (Yin et al., 2018)."""
    return replace(fedavg(train, per_round=per_round), name="median", mix=None, combine=Median())
