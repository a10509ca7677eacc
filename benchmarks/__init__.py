"""Speed: Covey beside raw PyTorch loops that do exactly the same SGD steps with no framework."""
