"""Studies: several configurations with several seeds each, side by side on this machine, and what they show."""
