"""Covey: federated learning for clients that do not look alike."""

__version__ = "0.1.0"
