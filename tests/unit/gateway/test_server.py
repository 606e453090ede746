"""Connections: TLS, pages of other origins, and bodies that do not come."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.requests import Request

from spatialstream.gateway import requests
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.problems import Problem
from tests.unit.gateway.http import served, serving

PAGE, ELSEWHERE = "https://maps.example", "https://evil.example"


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of localhost, signed by itself, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "tls.crt", folder / "tls.key"
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(*form))
    return paths


def test_with_a_certificate_it_speaks_tls_and_nothing_else(tmp_path: Path) -> None:
    public, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(public))
    with serving(Gateway([]), certificate=public, key=key) as client:
        connection = http.client.HTTPSConnection("localhost", client.port, timeout=60.0, context=trusting)
        connection.request("GET", "/collections")
        answer = connection.getresponse()
        links = json.loads(answer.read())["links"]
        connection.close()
        assert answer.status == 200
        assert links[0]["href"] == f"https://localhost:{client.port}/collections"
        with pytest.raises((http.client.HTTPException, OSError)):
            client("GET", "/live")


def test_pages_of_origins_that_are_named_may_call_it_and_no_others() -> None:
    with serving(Gateway([served("s")], origins=[PAGE])) as client:

        def asked(origin: str, header: str) -> tuple[int, str | None]:
            """Whether a browser is told before that a page of this origin may send this header."""
            wanted = {"access-control-request-method": "POST", "access-control-request-headers": header}
            answer = client("OPTIONS", "/streams/s/ask", origin=origin, **wanted)
            return answer.status, answer.headers.get("access-control-allow-origin")

        for header in ("authorization", "content-type", "idempotency-key", "last-event-id"):
            assert asked(PAGE, header) == (200, PAGE)
        assert asked(PAGE, "x-other")[0] == 400
        assert asked(ELSEWHERE, "authorization") == (400, None)
        answer = client("GET", "/streams", origin=PAGE)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
        shown = {each.strip() for each in answer.headers["access-control-expose-headers"].split(",")}
        assert shown == {"Retry-After", "Next-Position"}
        assert "access-control-allow-origin" not in client("GET", "/streams", origin=ELSEWHERE).headers


def test_a_body_that_does_not_come_is_waited_for_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_BODY_SECONDS", 0.1)
    with serving(Gateway([served("s")])) as client:
        connection = client.connection()
        connection.putrequest("POST", "/streams/s/ask")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", "100")
        connection.endheaders(b"{")
        answer = connection.getresponse()
        assert answer.status == 408
        assert json.loads(answer.read())["detail"] == "the body has not come within 0.1 s"
        connection.close()
        assert client("GET", "/live").status == 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 10.0), ("timeout=5s", 5.0), ("timeout=250", 0.25), ("timeout=1h", 60.0), ("timeout=0", 0.0)],
)
def test_nothing_is_waited_for_longer_than_the_most(text: str, seconds: float) -> None:
    request = Request({"type": "http", "query_string": text.encode(), "headers": []})
    assert requests.duration(request, "timeout", 10_000, 60_000) == seconds


def test_a_duration_that_is_none_is_named() -> None:
    request = Request({"type": "http", "query_string": b"timeout=soon", "headers": []})
    with pytest.raises(Problem) as refused:
        requests.duration(request, "timeout", 10_000, 60_000)
    assert refused.value.errors[0]["parameter"] == "timeout"
