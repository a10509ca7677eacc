"""Differential privacy for what clients send when they train, and for what the server makes of it."""
