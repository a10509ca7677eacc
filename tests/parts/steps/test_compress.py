"""Updates that travel shortened."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.core.round import Reply, Task, run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.steps.compress import Compressed, packed_update, unpacked_update
from covey.runs.config import resolve
from covey.testing import check_broken, check_resume, final, small_fleet
from covey.training.rows import Layout
from tests.methods.test_feddyn import full_batch, least_squares

UPDATE = torch.tensor([0.5, -3.0, 0.25, 1.0])
RNG = np.random.default_rng


def test_shortened_forms_by_hand() -> None:
    top = packed_update(UPDATE, "top-k", 0.5, RNG(0))
    assert (top["places"].tolist(), top["values"].tolist()) == ([1, 3], [-3, 1])
    assert unpacked_update(top, "top-k", 4).tolist() == [0, -3, 0, 1]
    one = packed_update(UPDATE, "1-bit", 1, RNG(0))
    assert unpacked_update(one, "1-bit", 4).tolist() == pytest.approx([1.1875, -1.1875, 1.1875, 1.1875])
    mask = packed_update(UPDATE, "mask", 0.5, RNG(0))
    found = unpacked_update(mask, "mask", 4)
    assert [v for v in found.tolist() if v] == mask["values"].tolist()
    levels = unpacked_update(packed_update(UPDATE, "8-bit", 1, RNG(0)), "8-bit", 4)
    assert levels.tolist() == pytest.approx(UPDATE.tolist(), abs=4 / 255)


def test_eight_bits_are_right_on_average() -> None:
    found = [unpacked_update(packed_update(UPDATE, "8-bit", 1, RNG(i)), "8-bit", 4) for i in range(400)]
    assert torch.stack(found).mean(0).tolist() == pytest.approx(UPDATE.tolist(), abs=1e-3)


def test_what_is_left_out_is_sent_later() -> None:
    """One client, a third of three numbers per round: what was sent and what is owed is all that was trained."""
    fleet = least_squares([30])[2]
    plain = fedavg(full_batch(), per_round=1)
    state = run_rounds(
        replace(plain, local=Compressed(step=plain.local, how="top-k", share=0.3)), fleet, rounds=1
    )
    owed = fleet.save()["states"]["0"]["owed"][0]
    whole = run_rounds(plain, least_squares([30])[2], rounds=1)
    assert torch.allclose(state.models[0] + owed, whole.models[0], atol=1e-6)
    assert int((state.models[0] != 0).sum()) == 1


def test_bytes_are_those_that_are_sent() -> None:
    """1,000 numbers would be 4,000 bytes; two statistics are 16."""
    sizes = {}
    for how in ("top-k", "8-bit", "1-bit", "mask"):
        packed = packed_update(torch.randn(1000), how, 0.05, RNG(0))
        sizes[how] = Reply(id=0, stats={"loss": 1.0, "batches": 1, "packed": packed}).nbytes - 16
    assert sizes == {"top-k": 50 * 8, "8-bit": 1000 + 16, "1-bit": 125 + 8, "mask": 200 + 8}


@pytest.mark.parametrize("how", ["top-k", "8-bit", "1-bit", "mask"])
def test_a_shortened_method_keeps_the_contract(how) -> None:
    plain = fedavg(full_batch(), per_round=8)
    method = replace(plain, local=Compressed(step=replace(plain.local, epochs=1), how=how))
    check_resume(method, final(method, small_fleet()), small_fleet)
    check_broken(method, small_fleet)


def test_what_cannot_be_read_is_refused() -> None:
    layout = Layout(names=("w",), shapes=((4,),), trainable=4, size=4)
    task = Task(models=torch.zeros(1, 4), slots=(0,))
    for how, packed in (
        ("top-k", {"places": np.array([9]), "values": np.ones(1)}),
        ("1-bit", {"signs": [], "length": 1}),
    ):
        with pytest.raises(ValueError, match=r"its places|it has too few"):
            Compressed(step=full_batch(), how=how).unpacked(
                Reply(id=0, stats={"packed": packed}), task, layout
            )


def test_any_method_can_have_it_in_a_file() -> None:
    method = resolve({"method": {"name": "ditto"}, "compress": {"name": "top-k", "share": 0.1}}).method
    assert isinstance(method.local, Compressed)
    assert (method.local.how, method.local.share) == ("top-k", 0.1)
    with pytest.raises(UserError, match=r"compress\.share is 0"):
        resolve({"compress": {"name": "top-k", "share": 0}})
