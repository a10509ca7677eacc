"""Reproducing the papers' tables and figures: one TOML an experiment, the paper's numbers beside ours."""
