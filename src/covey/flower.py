"""Covey for people who have Flower already: a strategy for foreign ClientApps, Flower's strategies as methods, and
covey as an app of its own.

Only public names of Flower are used here (`flwr.app`, `flwr.clientapp`, `flwr.serverapp`).
"""

from covey.deploy.superlink import need_flower

need_flower()

from covey.deploy.flower.apps import client_app, portraits, server_app  # noqa: E402
from covey.deploy.flower.foreign import Names  # noqa: E402
from covey.deploy.flower.inside import as_method  # noqa: E402
from covey.deploy.flower.strategy import Strategy  # noqa: E402

__all__ = ["Names", "Strategy", "as_method", "client_app", "portraits", "server_app"]
