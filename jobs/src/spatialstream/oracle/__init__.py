"""The oracle: computes the right answers by brute force, and compares a run's results with them.

It is *independent* of the engine: plain Python over plain objects, one query at a time, checking every object. No
numpy, no compiled kernel, no index, no micro-batch, no Spark. It shares with the engine the record parsers and the
types of :mod:`spatialstream.model`, which define the meaning of a record, and nothing that decides an answer:
containment, distance, order of results, lifetimes, windows and steps are implemented again here, from the definitions
in the documentation of query semantics. Obvious correctness goes before speed: q queries over n objects cost O(q n).

- :mod:`~spatialstream.oracle.semantics`: :func:`answers`, the result rows of a whole stream;
- :mod:`~spatialstream.oracle.comparison`: :func:`check`, two multisets of rows compared;
- :mod:`~spatialstream.oracle.files`: :func:`check_files`, the same from the files of a run.
"""

from spatialstream.oracle.comparison import Difference, check
from spatialstream.oracle.files import Check, check_files, read_objects, read_queries, read_rows
from spatialstream.oracle.semantics import answers

__all__ = ["Check", "Difference", "answers", "check", "check_files", "read_objects", "read_queries", "read_rows"]
