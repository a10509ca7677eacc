"""Settings read off signatures, TOML, registries, a user's own code.

What declares settings is imported from here, and listed in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
