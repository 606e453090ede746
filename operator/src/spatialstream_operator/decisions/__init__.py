"""What the operator decides: pure functions of what was seen, with the time as an argument.

A decision knows no clock, no Kubernetes, no Prometheus and no ZooKeeper. It takes a state and what was observed, and
gives the next state and what to do about it. The states go to the resource's status and come from it again, so that an
operator that was restarted goes on where the one before it stopped.

===================================================== ================================================================
:mod:`~spatialstream_operator.decisions.rebalancing`  when routing versions are proposed, published and withdrawn
:mod:`~spatialstream_operator.decisions.balance`      what is said about balance in the ``Balanced`` condition
:mod:`~spatialstream_operator.decisions.choosing`     which of the paper's strategies a proposal is made with
:mod:`~spatialstream_operator.decisions.autoscaling`  how many executors the worker should have
:mod:`~spatialstream_operator.decisions.executors`    when executors that are missing are told of, and why they are
:mod:`~spatialstream_operator.decisions.restarts`     when the drivers' pods are made, removed and made again
:mod:`~spatialstream_operator.decisions.conditions`   the conditions, the phase, and the events of a stream
:mod:`~spatialstream_operator.decisions.standing`     what is registered that a query stands, and what is said
===================================================== ================================================================
"""
