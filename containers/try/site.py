"""A site of compose.yaml: every third of the digits that come with scikit-learn."""

from pathlib import Path

from covey.runs.config import federation_of, resolve
from covey.settings.toml import read_tables


def load(name):
    tables = read_tables(Path(__file__).with_name("run.toml"))
    share = federation_of(resolve(tables)).shares[int(name.removeprefix("site-"))]
    return share.train, share.test
