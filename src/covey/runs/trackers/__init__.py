"""The trackers that are built in; each imports its package when it is first used."""
