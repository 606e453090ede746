"""Baselines of the other papers, to compare with; nobody wants them in a stream."""
