"""A site's data: here a share of the digits, so that a deployment can be compared with its simulation.

A real site returns its own samples: `covey.data.from_tensors(x, y, name="mine", classes=...)`.
"""

from pathlib import Path

from covey.data import Samples
from covey.runs.config import federation_of, resolve
from covey.settings.toml import read_tables


def load(name: str) -> tuple[Samples, Samples]:
    """Site `site-3` holds what client 3 holds in `covey run digits.toml`."""
    config = resolve(read_tables(Path(__file__).with_name("digits.toml")))
    share = federation_of(config).shares[int(name.removeprefix("site-"))]
    return share.train, share.test
