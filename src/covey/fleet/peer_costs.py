"""What it costs when clients send each other models."""

from collections.abc import Sequence

import numpy as np

from covey.core.ledger import Cost
from covey.fleet.profiles import Device
from covey.parts.mix.peers import Links


def cost_of_links(sent: Links, row_bytes: int, machines: Sequence[Device]) -> Cost:
    """Messages and bytes of the links; a client handles its own one after another, and the busiest sets the time."""
    clients = int(max(sent.sender.max(initial=-1), sent.receiver.max(initial=-1))) + 1
    up = np.bincount(sent.sender, weights=sent.rows, minlength=clients) * row_bytes
    down = np.bincount(sent.receiver, weights=sent.rows, minlength=clients) * row_bytes
    ends = np.bincount(sent.sender, minlength=clients) + np.bincount(sent.receiver, minlength=clients)
    seconds = 0.0
    for client in np.flatnonzero(ends).tolist():
        machine = machines[client]
        transfer = machine.seconds(bytes_down=int(down[client]), bytes_up=int(up[client]), work=0, pace=0)
        waits = (int(ends[client]) - 1) * (machine.latency + machine.delay)
        seconds = max(seconds, transfer + waits)
    rows = int(sent.rows.sum())
    return Cost(messages=rows, bytes_peer=rows * row_bytes, seconds=seconds)
