"""Who gets which samples: pure functions; `covey.settings.catalogue.PARTITIONS` names them."""

from covey.settings.catalogue import PARTITIONS

__all__ = ["PARTITIONS"]
