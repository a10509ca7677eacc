"""What a part needs is said when a method is composed, in one sentence."""

from dataclasses import replace

import pytest

from covey.core.declare import part
from covey.core.needs import GROUPS, Key, check_parts
from covey.core.round import Method
from covey.errors import RunError, UserError
from covey.methods.baselines import fedavg
from covey.methods.haccs import haccs
from covey.methods.ifca import ifca
from covey.parts.banks import one_per_client, to_group
from covey.parts.group.label_feature import by_label
from covey.parts.group.membership import one_per_group
from covey.parts.mix.average import Average
from covey.parts.mix.exchange import Exchange
from covey.parts.selection import Uniform
from covey.parts.selection.clusters import EveryCluster
from covey.parts.selection.haccs import ByCluster
from covey.parts.steps import Train

TRAIN = Train()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"select": EveryCluster(per_round=3)}, "select EveryCluster needs groups: add a group part"),
        ({"bank": one_per_group, "send": to_group}, "bank one_per_group needs groups: add a group part"),
        (
            {"group": by_label, "send": to_group},
            'send to_group needs a model per group: set bank = "per-group"',
        ),
        (
            {"mix": Exchange(kind="decentralized", backbone="ring")},
            "mix Exchange needs a model per client: .*",
        ),
        ({"bank": one_per_client}, 'send to_everybody needs one common model: set bank = "one"'),
        (
            {"group": by_label, "select": ByCluster(step=TRAIN)},
            'select ByCluster needs losses: add "losses" to after',
        ),
    ],
)
def test_what_is_missing_is_said_when_the_method_is_made(changes, sentence) -> None:
    with pytest.raises(UserError, match=f"^{sentence}$"):
        replace(fedavg(TRAIN), **changes)


def test_bookkeeping_that_others_rely_on_cannot_be_left_out() -> None:
    with pytest.raises(UserError, match="needs losses"):
        replace(haccs(TRAIN), after=())
    assert replace(haccs(TRAIN, losses="asked"), after=()).name == "haccs"


def test_two_parts_must_not_both_make_the_groups() -> None:
    with pytest.raises(UserError, match="group by_label and after remember_choices both make groups"):
        replace(ifca(TRAIN), group=by_label)


def test_a_part_that_says_nothing_needs_nothing() -> None:
    Method(name="plain", select=lambda now: now.here, local=TRAIN, mix=Average())
    check_parts({"select uniform": Uniform()})


def test_a_function_declares_with_a_decorator() -> None:
    @part("select", "mine", needs=(GROUPS,))
    def picky(now):
        return now.here

    with pytest.raises(UserError, match="select mine needs groups"):
        check_parts({"select mine": picky})


def test_what_is_not_in_the_memory_is_an_error_and_never_a_default() -> None:
    times: Key[dict[int, int]] = Key("times", 'add "times" to after')
    memory: dict = {}
    with pytest.raises(RunError, match='the server knows no times: add "times" to after'):
        times.of(memory)
    times.keep(memory, {3: 1})
    assert times.of(memory) == {3: 1}
    assert memory == {"times": {3: 1}}
