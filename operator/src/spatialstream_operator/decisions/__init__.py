"""The operator's decisions: pure functions of observations, with the time as an argument.

A decision does not use a clock, Kubernetes, Prometheus or ZooKeeper. It maps a state and an observation to the next
state and the actions to take. States are stored in the resource's status, so an operator that was restarted continues
where the previous one stopped.

===================================================== ================================================================
:mod:`~spatialstream_operator.decisions.rebalancing`  when routing versions are proposed, published and withdrawn
:mod:`~spatialstream_operator.decisions.balance`      the ``Balanced`` condition
:mod:`~spatialstream_operator.decisions.choosing`     which of the paper's strategies a proposal uses
:mod:`~spatialstream_operator.decisions.autoscaling`  how many executors a job should have
:mod:`~spatialstream_operator.decisions.executors`    when missing executors are reported, and with which cause
:mod:`~spatialstream_operator.decisions.restarts`     when driver pods are created, deleted and recreated
:mod:`~spatialstream_operator.decisions.conditions`   the conditions, the phase, and the events of a stream
:mod:`~spatialstream_operator.decisions.registration` when continuous queries are registered, and their status
===================================================== ================================================================
"""
