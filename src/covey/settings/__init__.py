"""Settings read off signatures, TOML files, registries, a user's own code."""
