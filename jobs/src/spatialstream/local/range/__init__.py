"""Continuous range-keyword queries (CRQ)."""
