"""What is frozen is beside the row: found, shared, addressed by its content and put together again."""

import copy

import pytest
import torch
from torch import nn

from covey.errors import UserError
from covey.training.bench.base import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.frozen import Frozen, copy_sharing, hollow, train_only
from covey.training.objective import Classification
from covey.training.rows import Layout, fresh_row, read_row, write_row


def network() -> nn.Sequential:
    """Two inputs, a frozen layer with BatchNorm, a head of 3 x 2 + 2 = 8 numbers."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    train_only(made, ["2"])
    return made


def test_the_row_holds_what_trains_and_nothing_that_is_frozen() -> None:
    layout = Layout.of(network())
    assert layout.names == ("2.weight", "2.bias")
    assert (layout.trainable, layout.size) == (8, 8)
    # 2 x 3 + 3 weights, 3 + 3 of BatchNorm, its mean, variance and counter
    assert layout.frozen == 9 + 6 + 7
    assert not layout.has_buffers


def test_statistics_of_a_layer_that_trains_stay_in_the_row() -> None:
    made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    train_only(made, ["1.bias", "2"])
    layout = Layout.of(made)
    assert layout.names == ("1.bias", "2.weight", "2.bias", "1.running_mean", "1.running_var")
    assert layout.frozen == 9 + 3


def test_a_model_with_nothing_frozen_is_as_before() -> None:
    made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    assert (Layout.of(made).trainable, Layout.of(made).size, Layout.of(made).frozen) == (23, 29, 0)
    assert Frozen.of(made).digest == ""


@pytest.mark.parametrize(
    ("patterns", "trains"),
    [
        (["2"], {"2.weight", "2.bias"}),
        (["*.bias"], {"0.bias", "1.bias", "2.bias"}),
        (["2.weight", "0.*"], {"2.weight", "0.weight", "0.bias"}),
    ],
)
def test_what_trains_is_named_by_patterns_and_by_modules(patterns: list[str], trains: set[str]) -> None:
    made = network()
    train_only(made, patterns)
    assert {name for name, p in made.named_parameters() if p.requires_grad} == trains


def test_a_pattern_that_names_nothing_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"model.train has 'haed', which is no parameter or module.*0.weight"):
        train_only(network(), ["2", "haed"])


def test_the_digest_is_that_of_the_content() -> None:
    one, other = network(), network()
    assert Frozen.of(one).digest == Frozen.of(other).digest
    with torch.no_grad():
        one[2].weight.add_(1)  # it trains
    assert Frozen.of(one).digest == Frozen.of(other).digest
    with torch.no_grad():
        one[0].weight[0, 0] += 1e-6
    assert Frozen.of(one).digest != Frozen.of(other).digest


def test_a_file_of_it_gives_the_same_network_again_and_no_other() -> None:
    made, blank = network(), network()
    with torch.no_grad():
        for parameter in blank.parameters():
            parameter.zero_()
    frozen = Frozen.of(made)
    Frozen.from_file(frozen.file(), frozen.digest).put_into(blank)
    write_row(blank, read_row(made))
    x = torch.randn(5, 2)
    assert torch.equal(made.eval()(x), blank.eval()(x))
    with pytest.raises(ValueError, match="not the one that its digest says"):
        Frozen.from_file(frozen.file(), "0" * 64)
    with pytest.raises(ValueError, match="no safetensors"):
        Frozen.from_file(b"nonsense", frozen.digest)
    with pytest.raises(ValueError, match="of another model"):
        frozen.put_into(nn.Linear(2, 2))


def test_copies_share_its_memory_and_have_their_own_of_what_trains() -> None:
    made = network()
    again = copy_sharing(made)
    assert again[0].weight.data_ptr() == made[0].weight.data_ptr()
    assert again[1].running_mean.data_ptr() == made[1].running_mean.data_ptr()
    assert again[2].weight.data_ptr() != made[2].weight.data_ptr()
    benches = [TorchBench(made, Classification()) for _ in range(2)]
    assert benches[0].model[0].weight.data_ptr() == benches[1].model[0].weight.data_ptr()  # type: ignore[index,union-attr,operator]


def test_a_hollow_model_is_filled_again() -> None:
    made = network()
    empty = hollow(made)
    assert empty[0].weight.untyped_storage().nbytes() == 4
    Frozen.from_arrays(Frozen.of(made).arrays(), empty).put_into(empty)
    assert Frozen.of(empty).digest == Frozen.of(made).digest


def test_training_changes_nothing_of_it_and_its_statistics_are_used_as_they_came() -> None:
    made = network()
    made[1].running_mean.fill_(0.5)
    before = Frozen.of(made).digest
    bench = TorchBench(made, Classification())
    x, y = torch.randn(8, 2), torch.tensor([0, 1] * 4)
    batches = [torch.arange(8).numpy()]
    row = bench.fit(read_row(made), x, y, batches, Recipe(lr=0.1), seed=0).row
    assert Frozen.of(made).digest == Frozen.of(bench.model).digest == before
    # one step by hand: the head on features that the frozen part gives in evaluation
    head = copy.deepcopy(made[2])
    nn.functional.cross_entropy(head(made[:2].eval()(x)), y).backward()
    stepped = [parameter - 0.1 * parameter.grad for parameter in head.parameters()]
    assert torch.allclose(row, torch.cat([part.flatten() for part in stepped]), atol=1e-7)


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.middle = nn.Linear(4, 4)
            self.out = nn.Linear(4, 5, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.middle(self.embed(x).mean(1)))  # type: ignore[no-any-return]

    for patterns, trainable in ((["embed"], 20), (["out"], 20), (["middle"], 20)):
        made = Tied()
        train_only(made, patterns)
        assert Layout.of(made).trainable == trainable
        bench = TorchBench(made, Classification())
        y = torch.tensor([0, 1])
        fitted = bench.fit(read_row(made), torch.tensor([[1], [2]]), y, [y.numpy()], Recipe(lr=1.0), seed=0)
        assert not torch.equal(fitted.row, read_row(made))
        model: Tied = bench.model  # type: ignore[assignment]
        assert model.out.weight is model.embed.weight


def test_further_starts_redraw_layers_that_train_and_move_what_fits_the_frozen_part() -> None:
    made = network()
    head = fresh_row(made, 1, 1)
    assert not torch.isclose(head, read_row(made)).any()
    train_only(made, ["*.bias"])
    near = fresh_row(made, 1, 1) - read_row(made)
    assert 0 < float(near.abs().max()) < 0.05
    assert torch.equal(fresh_row(made, 1, 1), fresh_row(made, 1, 1))
    assert not torch.equal(fresh_row(made, 1, 1), fresh_row(made, 1, 2))
