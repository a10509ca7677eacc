"""What every process of a deployment imports, so that it is imported once."""

import opendp.prelude  # noqa: F401
import torch

from covey.data import load
from covey.deploy.superlink import need_flower
from covey.settings.catalogue import STEPS

torch.set_num_threads(1)
need_flower()
list(STEPS.values())
load("digits")
