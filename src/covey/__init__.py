"""Federated learning for heterogeneous (non-IID) clients.

The public names are those of `dir(covey)`, listed in `__init__.pyi` and promised in docs/api.md; each is imported when
it is first used, so that `import covey` costs nothing. All other modules are internal.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
