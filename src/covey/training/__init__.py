"""Where a model is trained: networks, objective, metrics, a model as a row of numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["models"])
