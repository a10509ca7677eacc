"""The live page: all runs of a folder while they go on, served on this machine."""
