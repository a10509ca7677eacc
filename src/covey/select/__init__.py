"""Who works in a round."""

from covey.select.plain import Everybody, Poisson, Uniform, the_server

__all__ = ["Everybody", "Poisson", "Uniform", "the_server"]
