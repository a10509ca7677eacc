"""Who works in a round."""

from covey.select.plain import Everybody, Uniform, the_server

__all__ = ["Everybody", "Uniform", "the_server"]
