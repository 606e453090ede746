"""Actors reachable from other machines use TLS, with a certificate of their own job."""

from __future__ import annotations

import json

import pytest

from spatialstream.actors.identity import is_loopback, new_identity
from spatialstream.actors.query_metrics import none_asked
from spatialstream.actors.registry import ActorRegistry
from spatialstream.actors.wire import ActorLost, act, client_of, options
from spatialstream.connectors.requests import no_requests

ABOUT = {"name": "a", "number": 0, "address": "127.0.0.1:1", "executor": "1", "pid": 1, "known": False}
COUNTS = {"asked": none_asked().tolist(), "requests": no_requests().tolist(), "progress": 0, "memory": 0}
HELLO = json.dumps({**ABOUT, "worked": {}, **COUNTS}).encode()


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("[::1]", True), ("localhost", True), ("10.0.0.7", False), ("a", False)]
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_one_that_shows_another_certificate_or_none_is_not_spoken_to() -> None:
    identity = new_identity()
    registry = ActorRegistry("127.0.0.1", "secret", 10.0, identity)
    address, how = f"127.0.0.1:{registry.port}", options("secret", 5.0)
    try:
        assert act(client_of(address, identity[0]), "heartbeat", HELLO, how) == "stay"
        for root in (new_identity()[0], None):
            with pytest.raises(ActorLost):
                act(client_of(address, root), "heartbeat", HELLO, how)
    finally:
        registry.shutdown()
