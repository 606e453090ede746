"""Continuous k-nearest queries (CKQ): in a slot, and over all slots."""
