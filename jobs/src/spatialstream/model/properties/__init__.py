"""Properties of objects, and conditions on them: the typed fields that a stream declares, and what ``where`` asks.

A *property* is a field of an object that a stream declares, with one of four types: ``keyword``, ``number``, ``time``
or ``boolean``. A value may be missing. A *condition* is a boolean expression of tests of properties, written in CQL2
(OGC 21-065r2); a missing value makes a test unknown, and only what is true is found.

:mod:`.declared` says which properties there are, and reads the values of one record; :mod:`.columns` keeps those of
many objects in Arrow's types. :mod:`.cql2` reads and checks a condition once, where it enters; :mod:`.condition` is the
value, in a normal form. :mod:`.table` keeps columns as kernels take them, and :mod:`.programs` conditions, with the
kernel that decides pairs of an object and a condition.
"""
