"""The version, in a file that needs nothing else."""

__version__ = "0.1.0"
