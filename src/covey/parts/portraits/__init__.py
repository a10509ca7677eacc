"""Clients whose classes look alike: what they tell of these, how far apart they are, which clusters that makes."""
