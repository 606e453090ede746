"""Servers of a stream, as the operator asks for them from its own namespace."""

from __future__ import annotations

import pytest

from spatialstream.model.addresses import servers_from_outside, url_from_outside


@pytest.mark.parametrize(
    ("given", "outside"),
    [
        ("zookeeper:2181", "zookeeper.geo.svc:2181"),
        ("zk-0.zk:2181,zk-1.zk:2181", "zk-0.zk:2181,zk-1.zk:2181"),
        ("zk1:2181, zk2/spatial", "zk1.geo.svc:2181,zk2.geo.svc/spatial"),
        ("10.0.0.1:2181", "10.0.0.1:2181"),
        ("[::1]:2181", "[::1]:2181"),
        ("localhost:2181", "localhost:2181"),
    ],
)
def test_a_host_without_a_dot_is_a_service_of_the_streams_namespace(given: str, outside: str) -> None:
    assert servers_from_outside(given, "geo") == outside


@pytest.mark.parametrize(
    ("given", "outside"),
    [
        ("http://prometheus:9090", "http://prometheus.geo.svc:9090"),
        ("http://user:prometheus@prometheus/x?y=1", "http://user:prometheus@prometheus.geo.svc/x?y=1"),
        ("https://prometheus.monitoring.svc:9090", "https://prometheus.monitoring.svc:9090"),
        ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
    ],
)
def test_so_is_that_of_a_url(given: str, outside: str) -> None:
    assert url_from_outside(given, "geo") == outside
