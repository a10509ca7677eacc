"""The round: messages, what parts need and give, costs, checks of replies, bytes.

What methods and parts are written with is imported from here, and listed in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
