"""The server: what is run is in `digits.toml`, as for `covey run`."""

from pathlib import Path

from covey.flower import server_app
from covey.runs.config import resolve
from covey.settings.toml import read_tables

app = server_app(resolve(read_tables(Path(__file__).with_name("digits.toml"))))
