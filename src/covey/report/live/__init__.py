"""The live page: all runs of a folder while they are under way, served on this machine."""
