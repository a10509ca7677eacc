"""Data sets, how they are partitioned among clients, and how clients' data are shifted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
