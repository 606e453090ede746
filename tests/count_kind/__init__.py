"""A kind of query that is not in the product, with a row for each table of kinds: the number of objects in a region.

SCQ is the number at its time. CCQ is the number in the window at each step. It is written to be short, not fast.
"""
