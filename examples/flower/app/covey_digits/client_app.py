"""A node: its data is a share of the digits; yours is what `load` gives for the node's name."""

from pathlib import Path

from covey.data import Samples
from covey.flower import client_app
from covey.runs.config import federation_of, resolve
from covey.settings.toml import read_tables


def load(name: str) -> tuple[Samples, Samples]:
    """Node `site-3` holds what client 3 holds in `covey run digits.toml`."""
    config = resolve(read_tables(Path(__file__).with_name("digits.toml")))
    share = federation_of(config).shares[int(name.removeprefix("site-"))]
    return share.train, share.test


app = client_app(load)
