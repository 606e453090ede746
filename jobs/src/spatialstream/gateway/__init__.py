"""The HTTP gateway of live streams: ask from a browser or with curl, without a client of the broker.

- :mod:`~spatialstream.gateway.app` is the interface: which path does what, for whom;
- :mod:`~spatialstream.gateway.streams` reaches the streams behind it;
- :mod:`~spatialstream.gateway.access` says who may do what, :mod:`~spatialstream.gateway.problems` how a refusal looks;
- :mod:`~spatialstream.gateway.server` runs it.

It keeps nothing but connections: any number of processes serve the same streams, and one that is killed is missed by
nobody who asks again.
"""
