"""Who gets which samples: pure functions; `covey.catalogue.PARTITIONS` names them."""

from covey.catalogue import PARTITIONS

__all__ = ["PARTITIONS"]
