"""Other simulators on the same workloads: python -m benchmarks.peers [--workloads W1 W3] [--rounds N]

Each runs in an environment of its own, made with pip at the first run (torch by its exact version first), so that
nobody's requirements meet. All variants take turns, round by round.
"""
