"""Continuous top-k terms queries (CTQ): in a slot, and over all slots."""
