"""The version, in a file that needs nothing else."""

__version__ = "0.2.0"
