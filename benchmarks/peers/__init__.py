"""Other simulators on the same workloads: python -m benchmarks.peers [--workloads W1 whole] [--rounds N]

Each runs in an environment of its own, made with pip at the first run (torch by its exact version first), so that
nobody's requirements meet. All variants take turns, round by round;
`whole` is a run from the command to the last number.
`--peers` and `--ours` cut it into pieces, for a machine that others need, too.
PFLlib and FL-bench are no packages: COVEY_PFLLIB and COVEY_FL_BENCH say where checkouts of them are.
"""
