"""Who works in a round."""

from covey.parts.selection.plain import Everybody, Poisson, Uniform, the_server

__all__ = ["Everybody", "Poisson", "Uniform", "the_server"]
