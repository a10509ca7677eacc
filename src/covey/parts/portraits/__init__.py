"""Clients whose classes look alike: what they tell of these, how far they are apart, which clusters that makes."""
