"""Scores of ranked queries: place, text and time as one number, the same to the bit wherever it is computed.

The model is that of Pastri (Ray and Nickerson, JOSIS 24, 2022, section 3.1), with the corrections without which its own
example does not come out: Eqn 2 the right way up, and Eqn 3 with the norm over all words of the object. What it
sums are integers, and what it raises to a power is read from a table, so no order of evaluation and no library of
mathematical functions can change a score.

- :mod:`~spatialstream.model.ranking.scores`: the scores of an object, as kernels of scalars;
- :mod:`~spatialstream.model.ranking.weights`: the weights of words, of how many objects have them;
- :mod:`~spatialstream.model.ranking.powers`: the powers of two.
"""
