"""Table 1 of the topologies paper: how many messages each design takes."""

TABLE_1 = {
    ("decentralized", "full"): (122_500, 245_000),
    ("decentralized", "wheel"): (5_000, 10_000),
    ("decentralized", "ring"): (5_000, 10_000),
    ("hierarchical", "full"): (10_500, 17_000),
    ("hierarchical", "wheel"): (7_000, 10_000),
    ("hierarchical", "ring"): (7_000, 10_000),
    ("semi-decentralized", "full"): (6_500, 13_000),
    ("semi-decentralized", "wheel"): (3_000, 6_000),
    ("semi-decentralized", "ring"): (3_000, 6_000),
}
"""Messages in 100 rounds for 50 nodes in 10 clusters: periods of 2 rounds (MNIST) and of 1 (the others)."""
