"""Covey inside a Flower app."""
