"""The HTTP gateway of live streams: query them from a browser or with curl, without a Kafka client.

- :mod:`~spatialstream.gateway.app` is the interface: the paths, the rights they require, and their answers;
- :mod:`~spatialstream.gateway.streams` reaches the streams behind it;
- :mod:`~spatialstream.gateway.access` authenticates and authorizes callers;
- :mod:`~spatialstream.gateway.problems` formats errors;
- :mod:`~spatialstream.gateway.server` runs the server.

A gateway has no state but connections: any number of processes can serve the same streams, and clients of a process
that dies continue with another one.
"""
