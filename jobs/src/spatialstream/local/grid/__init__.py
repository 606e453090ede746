"""Grids of continuous queries: lookup of CRQs, and also of CKQs and CTQs, by cell and keyword together."""
