"""Networks of Hugging Face from a folder: masks, padding, adapters, and what a site is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.data import federate
from covey.data.types import Dataset
from covey.deploy.wire import ModelSpec
from covey.errors import UserError
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.training.models import build
from covey.training.objective import NextToken
from covey.training.rows import Layout

transformers = pytest.importorskip("transformers")
TOKENS = 11
X = torch.tensor([[1, 2, 3, 0, 0, 0], [4, 5, 6, 7, 0, 0]])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    config = transformers.GPT2Config(
        n_layer=1, n_embd=8, n_head=2, vocab_size=TOKENS, n_positions=6, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt")
    return str(tmp_path / "gpt")


def made(folder: str, **more: Any) -> torch.nn.Module:
    return build("huggingface", input_shape=(6,), outputs=TOKENS, path=folder, **more).eval()


def test_it_gives_what_the_network_gives_for_each_text_alone(folder: str) -> None:
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = made(folder)(X)
        for row, length in zip((0, 1), (3, 4), strict=True):
            alone = plain(input_ids=X[row : row + 1, :length]).logits[0].T
            assert torch.allclose(logits[row, :, :length], alone, atol=1e-5)
    assert logits.shape == (2, TOKENS, 6)
    assert not logits[:, :, 4:].any()  # behind the longest text nothing was computed


def test_padding_counts_for_nothing_in_the_loss(folder: str) -> None:
    goal, model = NextToken(), made(folder)
    longer = torch.cat([X, torch.zeros(2, 3, dtype=torch.long)], 1)
    y = torch.tensor([8, 9])
    with torch.no_grad():
        losses = [goal.loss(model(x), goal.target(x, y)) for x in (X, X[:, :4], longer[:, :6])]
    assert torch.allclose(losses[0], losses[1])
    assert torch.allclose(losses[0], losses[2])


def test_adapters_of_it_are_trained_over_clients(folder: str) -> None:
    pytest.importorskip("peft")
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(1, TOKENS, (60, 6), generator=rng)
    data = Dataset(
        name="tokens",
        x=x,
        y=x[:, 0].clone(),
        train=np.arange(40),
        test=np.arange(40, 60),
        classes=tuple(map(str, range(TOKENS))),
    )
    adapter = {"name": "peft", "type": "LORA", "targets": ["*.c_attn"], "settings": {"r": 2}}
    model = made(folder, adapter=adapter)
    fleet = LocalFleet(
        federate(data, partition="iid", clients=2, seed=0),
        model,
        objective=NextToken(),
        seed=1,
        engine=Engine(mode="wire"),
    )
    state = run_rounds(fedavg(Train(lr=0.1, epochs=1), per_round=2), fleet, rounds=1)
    assert state.models.shape == (1, 2 * 8 + 2 * 24)  # A is 2 x 8, B is 24 x 2
    assert not torch.equal(state.models[0], fleet.start())


def test_a_site_is_told_the_configuration_and_no_path(folder: str) -> None:
    spec = ModelSpec(
        name="huggingface", settings={"path": folder}, shape=(6,), outputs=TOKENS, objective="next-token"
    )
    told = spec.plain()
    assert folder not in json.dumps(told["settings"])
    there = ModelSpec(**{**told, "shape": (6,)})
    assert Layout.of(there.build()) == Layout.of(made(folder))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": "/nowhere"}, "model.path is '/nowhere'; allowed: a folder"),
        ({}, "model.path is missing"),
        ({"config": {"model_type": "nothing"}}, "no network can be made"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build("huggingface", input_shape=(6,), outputs=TOKENS, **settings)


def test_pickles_are_not_read(folder: str) -> None:
    (Path(folder) / "model.safetensors").unlink()
    torch.save({}, Path(folder) / "pytorch_model.bin")
    with pytest.raises(UserError, match="allowed: a folder with config"):
        made(folder)


def test_more_tokens_than_the_model_knows(folder: str) -> None:
    with pytest.raises(UserError, match="the model knows 11 tokens, the data have 12"):
        build("huggingface", input_shape=(6,), outputs=12, path=folder)


def test_what_transformers_says_is_cut_to_a_sentence() -> None:
    with pytest.raises(UserError, match=r"no network can be made: Unrecognized model identifier") as error:
        build("huggingface", input_shape=(4,), outputs=2, path="", config={"round": 0})
    assert len(str(error.value)) < 400
