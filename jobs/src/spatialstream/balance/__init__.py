"""Load balance: when it is lost, and which routing version would restore it (SSTD, section 5). Pure decisions.

- :mod:`~spatialstream.balance.loads`: the loads of leaves and slots from live counts, and how well the model fits;
- :mod:`~spatialstream.balance.attribution`: which leaves a slot's time goes to;
- :mod:`~spatialstream.balance.pm`: PM, the leaves of the most and the least loaded slot are shared out anew;
- :mod:`~spatialstream.balance.fm`: FM, all leaves are shared out anew, moving as few continuous queries as possible;
- :mod:`~spatialstream.balance.fg`: FG, the tree itself is adjusted, then FM;
- :mod:`~spatialstream.balance.rebuild`: the tree is built anew, from a sample of the stream;
- :mod:`~spatialstream.balance.proposal`: which of them to take, and what it does, in figures and words.
"""
