"""Load balance: imbalance, and routing versions that end it (SSTD, section 5; Tornado, section 4). No side effects.

- :mod:`~spatialstream.balance.loads`: the loads of leaves and slots from live counts, and the error of the cost model;
- :mod:`~spatialstream.balance.attribution`: attribution of a slot's time to its leaves;
- :mod:`~spatialstream.balance.pm`: PM, reassign the leaves of the most and the least loaded slot;
- :mod:`~spatialstream.balance.fm`: FM, reassign all leaves, moving as few continuous queries as possible;
- :mod:`~spatialstream.balance.adjusting`: adjust the index itself (FG, then FM; SM; SH; CM);
- :mod:`~spatialstream.balance.rebuild`: rebuild the tree from a sample of the stream;
- :mod:`~spatialstream.balance.proposal`: choice of a strategy, and a description of its effects.
"""
