"""Who is alike: distances, clusterings, newcomers."""
