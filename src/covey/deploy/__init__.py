"""Real devices: what a server asks, what a site answers, and Flower in between."""
