"""The steps of a reconciliation of a stream.

- :mod:`~spatialstream_operator.steps.permitting`: whether a stream may say what it says;
- :mod:`~spatialstream_operator.steps.topics`: whether the topics that it names are another stream's;
- :mod:`~spatialstream_operator.steps.trying`: whether another image can be used, before anything is stopped for it;
- :mod:`~spatialstream_operator.steps.dependents`: accounts, rights, configuration, services, monitor;
- :mod:`~spatialstream_operator.steps.checking`: whether the API server takes the pods of the spec;
- :mod:`~spatialstream_operator.steps.drivers`: the pods of router and worker;
- :mod:`~spatialstream_operator.steps.routing`: what the routing store says;
- :mod:`~spatialstream_operator.steps.measuring`: what Prometheus says;
- :mod:`~spatialstream_operator.steps.scaling`: how many executors there should be;
- :mod:`~spatialstream_operator.steps.executors`: executors that are wanted and missing for long;
- :mod:`~spatialstream_operator.steps.rejects`: whether too many records are rejected;
- :mod:`~spatialstream_operator.steps.rebalancing`: moving load;
- :mod:`~spatialstream_operator.steps.status`: status, conditions, events, metrics;
- :mod:`~spatialstream_operator.steps.beating`: when it was looked at;
- :mod:`~spatialstream_operator.steps.removing`: what is done when the stream is deleted.

The order is not critical: a step whose prerequisites are not met does nothing, and the next reconciliation comes soon.
"""
