"""The run folder: its files, read and written."""
