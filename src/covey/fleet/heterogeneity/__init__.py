"""How the clients of a fleet differ: measured, and said in words."""
