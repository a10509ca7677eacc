"""How much memory a simulation can need."""

from torch import nn

from covey.data.types import Federation, Samples
from covey.fleet.work import BUNDLE_SAMPLES
from covey.training.bench.torch_bench import FORWARD_BYTES
from covey.training.rows import Layout, activations


def memory_bound(
    data: Federation, model: nn.Module, layout: Layout, *, workers: int, own: bool, batch: int
) -> int:
    """Bytes that a run can need at most beside Python and PyTorch.

    The data; the bank of one model, or everybody's `own`, before and after it is mixed, and its checkpoint as arrays
    and as bytes; everybody's reply; and for each worker its model, its client's data and the activations of a training
    batch (with their gradients) or of a forward pass.
    """
    largest = int(data.sizes().sum(axis=1).max(initial=0))
    largest = max(largest, len(data.test), BUNDLE_SAMPLES)
    x, _ = Samples(data.dataset, data.dataset.train[:1]).tensors()
    row, sample = 4 * layout.size, 4 * x[0].numel()
    passing = max(8 * batch * activations(model, x), FORWARD_BYTES)
    per_worker = 5 * row + 3 * largest * sample + 2 * passing
    stored = data.dataset.x.nbytes + data.dataset.y.nbytes
    clients = len(data.shares)
    stored += 4 * layout.frozen  # once, for all workers
    return stored + row * (4 * (clients if own else 1) + 2 * clients) + workers * per_worker
