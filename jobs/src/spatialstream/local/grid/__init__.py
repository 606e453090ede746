"""Grids of continuous range-keyword queries: how CRQs are found by cell and keyword together, and CKQs and CTQs too."""
