"""How models combine: weights, averages, graphs, robust rules."""
