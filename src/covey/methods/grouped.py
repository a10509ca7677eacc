"""One model per group, averaged among its clients: what most clustered methods do once they know who is alike."""

from covey.core import Bank, Group, Method
from covey.parts.banks import to_group
from covey.parts.group.membership import one_per_group
from covey.parts.mix.average import Average
from covey.parts.selection.plain import Uniform
from covey.parts.steps.train import Train


def fedavg_per_group(
    name: str, train: Train, group: Group, *, per_round: int, bank: Bank = one_per_group
) -> Method:
    """FedAvg inside every group: some clients of all train the model of their group."""
    return Method(
        name=name,
        group=group,
        bank=bank,
        select=Uniform(per_round=per_round),
        send=to_group,
        local=train,
        mix=Average(),
    )
