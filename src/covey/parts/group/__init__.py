"""Who is alike: distances, clusterings, unseen clients."""
