"""Covey inside Flower, offered to users as `covey.flower`; only public names of Flower are used here."""
