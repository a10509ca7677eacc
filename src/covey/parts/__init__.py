"""What methods are composed of, where two or more share it: grouping, selection, mixing, updates, client steps."""
