"""Hostile tries: what a stranger, a broken disk or a slip of the pen could do, and what becomes of it.

One file is one subject; each try in it is a function that returns an outcome. `make hostile` (or `python -m
tests.hostile [SUBJECT ...]`) runs all of them, on this machine only and each within a bound on its time, and prints a
table.
"""
