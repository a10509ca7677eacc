"""LoRA: what it computes, what travels of it, and why its mean is the mean."""

from pathlib import Path

import pytest
import torch
from torch import nn

import covey
from covey.core.round import run_rounds
from covey.deploy.wire import ModelSpec
from covey.errors import UserError
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.folder.served_model import read_model
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.runs.config import resolve
from covey.runs.run import resume, run_config
from covey.testing import small_fleet
from covey.training.adapters import LoRA
from covey.training.models import build
from covey.training.models.transformers import Attention, Prefixed
from covey.training.rows import Layout
from tests.deploy.sites_by_hand import CLIENTS, DATA, Hand, sites
from tests.deploy.test_frozen_sender import fleet

VIT = {"name": "vit", "patch": 4, "width": 16, "depth": 2, "heads": 2}
LORA = {"name": "lora", "rank": 3, "targets": ["*.query", "*.value"]}


def test_it_adds_a_product_of_low_rank_that_begins_at_zero() -> None:
    base = nn.Linear(2, 2, bias=False)
    base.weight.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    made = LoRA(base, 1, 2.0)
    x = torch.tensor([[1.0, -1.0]])
    assert torch.equal(made(x), torch.tensor([[-1.0, -1.0]]))
    made.A.data, made.B.data = torch.tensor([[1.0, 3.0]]), torch.tensor([[5.0], [7.0]])
    # A x = 1 - 3 = -2; B A x = (-10, -14), twice that beside (-1, -1)
    assert torch.equal(made(x), torch.tensor([[-21.0, -29.0]]))


def test_b_trains_and_travels_and_what_train_names_beside_it() -> None:
    model = build(**VIT, input_shape=(1, 8, 8), outputs=10, adapter=LORA, train=["head"])
    layout = Layout.of(model)
    assert layout.trainable == 2 * 2 * 16 * 3 + 170
    assert {name.rpartition(".")[2] for name in layout.names} == {"B", "weight", "bias"}
    both = build(**VIT, input_shape=(1, 8, 8), outputs=10, adapter={**LORA, "travels": "both"})
    assert Layout.of(both).trainable == 2 * 2 * (16 * 3 + 3 * 16)


def test_the_mean_of_b_is_the_mean_of_the_adapters_and_that_of_both_is_not() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 4), torch.randn(2, 5, 3)
    shared = torch.stack([b[k] @ a[0] for k in range(2)]).mean(0)
    assert torch.allclose(b.mean(0) @ a[0], shared, atol=1e-6)
    own = torch.stack([b[k] @ a[k] for k in range(2)]).mean(0)
    assert not torch.allclose(b.mean(0) @ a.mean(0), own, atol=0.1)


def test_a_is_drawn_from_the_seed() -> None:
    models = [build(**VIT, input_shape=(1, 8, 8), outputs=10, adapter=LORA, seed=s) for s in (1, 1, 2)]
    drawn = [model.get_parameter("blocks.0.attention.query.A") for model in models]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_targets_that_are_no_linear_layers_are_a_sentence() -> None:
    with pytest.raises(
        UserError, match=r"model.adapter.targets is \['norm'\]; allowed: patterns of linear layers"
    ):
        build(**VIT, input_shape=(1, 8, 8), outputs=10, adapter={**LORA, "targets": ["norm"]})


def test_a_network_is_pretrained_exported_and_adapted_in_clusters(tmp_path: Path) -> None:
    first = {"rounds": 2, "data": {"clients": 4}, "model": VIT, "method": {"name": "fedavg", "per_round": 4}}
    run_config(resolve(first), tmp_path / "first")
    (file,) = covey.export(tmp_path / "first")
    model = {**VIT, "weights": str(file), "adapter": LORA, "train": ["head"]}
    then = {**first, "seed": 3, "model": model, "method": {"name": "ifca", "per_round": 4}}
    straight = run_config(resolve({**then, "rounds": 3}), tmp_path / "straight")
    run_config(resolve(then), tmp_path / "then")
    assert torch.equal(resume(tmp_path / "then", rounds=3).state.models, straight.state.models)
    file.unlink()  # a run folder needs nothing beside it
    models, data = covey.load_models(tmp_path / "then"), covey.load("digits")
    weight = models[0].get_parameter("blocks.0.attention.query.base.weight")
    assert torch.equal(
        weight, covey.load_models(tmp_path / "first")[0].get_parameter("blocks.0.attention.query.weight")
    )
    exported = read_model(covey.export(tmp_path / "then")[0])
    assert torch.allclose(exported.outputs(data.x[:3]), models.unseen(0).outputs(data.x[:3]))


def test_over_sites_the_server_sends_the_frozen_part_and_not_its_file(tmp_path: Path) -> None:
    first = {"rounds": 1, "data": {"clients": 4}, "model": VIT, "method": {"name": "fedavg", "per_round": 4}}
    run_config(resolve(first), tmp_path / "first")
    (file,) = covey.export(tmp_path / "first")
    settings = {key: value for key, value in VIT.items() if key != "name"}
    spec = ModelSpec(
        name="vit",
        settings={**settings, "weights": str(file), "adapter": LORA, "train": ["head"]},
        shape=(1, 8, 8),
        outputs=10,
        objective="classification",
    )
    assert "weights" not in spec.plain()["settings"]
    there = fleet(Hand(sites(tmp_path / "sites")), spec, deadline=60.0)
    method = fedavg(Train(lr=0.1), per_round=CLIENTS)
    state = run_rounds(method, there, rounds=2)
    local = LocalFleet(DATA, there.model, seed=5, engine=Engine(mode="serial", lanes=False))
    assert torch.equal(state.models, run_rounds(method, local, rounds=2).models)


def test_b_stays_at_home_and_a_is_shared() -> None:
    model = {**VIT, "adapter": {**LORA, "travels": "both"}}
    tables = {"method": {"name": "fedper", "per_round": 4, "home": ["*.B"]}, "train": {"epochs": 1}}
    config = resolve({**tables, "model": model})
    small = small_fleet(every=4, model=model)
    state = run_rounds(config.method, small, rounds=1)
    a = 2 * 2 * 3 * 16  # two blocks, query and value
    assert small.ledger.total["train.home"].bytes_down == 4 * 4 * a
    assert small.ledger.total["train.home"].bytes_up == 4 * (4 * a + 2 * 8)
    assert not state.models[0].view(4, 2, 48)[:, 1].any()  # what the server has of B is what it began with
    kept = next(iter(small.states.values()))["home"]
    assert all(values.any() for values in kept.values())
    assert sum(len(values) for values in kept.values()) == a


def test_a_pattern_of_nothing_is_one_sentence() -> None:
    config = resolve({"method": {"name": "fedper", "home": ["*.C"]}})
    with pytest.raises(UserError, match=r"method.home has '\*.C', which is no tensor that trains"):
        run_rounds(config.method, small_fleet(every=4), rounds=1)


@pytest.mark.parametrize(
    ("kind", "settings", "trained"),
    # of two blocks: 16 factors each; 2 x 3 x 16 for A and B; two products of 16 x 2 and 2 x 16 each
    [("IA3", {"feedforward_modules": []}, 32), ("LORA", {"r": 3}, 192), ("LOHA", {"r": 2}, 256)],
)
def test_what_peft_makes_of_a_network_trains_and_travels(kind: str, settings: dict, trained: int) -> None:
    pytest.importorskip("peft")
    adapter = {"name": "peft", "type": kind, "targets": ["*.query"], "settings": settings}
    model = {**VIT, "adapter": adapter}
    small = small_fleet(every=4, model=model)
    plain = build(**VIT, input_shape=(1, 8, 8), outputs=10, seed=1)
    assert small.layout.size == trained
    assert small.frozen.size == sum(p.numel() for p in plain.parameters())
    config = resolve({"method": {"name": "fedavg", "per_round": 4}, "train": {"epochs": 1}, "model": model})
    state = run_rounds(config.method, small, rounds=1)
    assert not torch.equal(state.models[0], small.start())


def test_what_peft_does_not_know_is_one_sentence() -> None:
    pytest.importorskip("peft")
    for adapter, said in (
        ({"type": "nothing", "targets": ["*.query"]}, "model.adapter.type is 'nothing'"),
        (
            {"type": "LORA", "targets": ["*.query"], "settings": {"rank": 3}},
            "unexpected keyword argument 'rank'",
        ),
        ({"type": "LORA", "targets": ["nobody"]}, "which no layer of the model is called"),
    ):
        with pytest.raises(UserError, match=said):
            build(**VIT, input_shape=(1, 8, 8), outputs=10, adapter={"name": "peft", **adapter})


@pytest.mark.parametrize(
    ("network", "shape", "target"),
    [
        ({"name": "decoder", "width": 16, "depth": 1, "heads": 2}, (6,), "body"),
        ({"name": "lstm", "width": 16}, (6,), "body"),
        (VIT, (1, 8, 8), "blocks"),
    ],
)
def test_a_prompt_is_all_that_trains_and_what_follows_it_answers(
    network: dict, shape: tuple[int, ...], target: str
) -> None:
    plain = build(**network, input_shape=shape, outputs=10)
    model = build(
        **network, input_shape=shape, outputs=10, adapter={"name": "prompt", "count": 3, "target": target}
    )
    assert Layout.of(model).trainable == 3 * 16
    x = torch.ones(2, *shape) if len(shape) == 3 else torch.ones(2, *shape, dtype=torch.long)
    assert model(x).shape == plain(x).shape
    model(x).sum().backward()
    assert model.get_submodule(target).prompt.grad.any()


def test_a_prompt_needs_layers_of_vectors() -> None:
    with pytest.raises(UserError, match="target is 'body'; allowed: layers that take vectors"):
        build("mlp", input_shape=(1, 8, 8), outputs=10, adapter={"name": "prompt"})


@pytest.mark.parametrize("causal", [True, False])
def test_a_prefix_is_seen_from_every_place_and_what_follows_a_place_is_not(causal: bool) -> None:
    torch.manual_seed(0)
    inner = Attention(2, 1, causal=causal)
    made, x = Prefixed(inner, 3), torch.randn(1, 4, 2)
    q, k, v = (layer(x)[0] for layer in (inner.query, inner.key, inner.value))
    places = []
    for at in range(4):  # by hand: one place after another, softmax over the prefix and what it may see
        seen = at + 1 if causal else 4
        keys, values = torch.cat([made.keys, k[:seen]]), torch.cat([made.values, v[:seen]])
        places.append(torch.softmax(keys @ q[at] / 2**0.5, 0) @ values)
    assert torch.allclose(made(x)[0], inner.out(torch.stack(places)), atol=1e-6)


@pytest.mark.parametrize(
    ("network", "shape"), [({**VIT, "name": "decoder", "patch": None}, (6,)), (VIT, (1, 8, 8))]
)
def test_a_prefix_is_all_that_trains(network: dict, shape: tuple[int, ...]) -> None:
    told = {key: value for key, value in network.items() if value is not None}
    model = build(**told, input_shape=shape, outputs=10, adapter={"name": "prefix", "count": 3})
    assert Layout.of(model).trainable == 2 * 2 * 3 * 16  # two blocks, keys and values
    x = torch.ones(2, *shape) if len(shape) == 3 else torch.ones(2, *shape, dtype=torch.long)
    model(x).sum().backward()
    assert all(parameter.grad.any() for parameter in model.parameters() if parameter.requires_grad)


def test_a_prefix_needs_attention() -> None:
    with pytest.raises(UserError, match=r'adapter\.name is "prefix", which needs attention'):
        build("mlp", input_shape=(1, 8, 8), outputs=10, adapter={"name": "prefix"})
