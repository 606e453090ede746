"""Continuous best queries (CBQ): in a slot, and over all slots."""
