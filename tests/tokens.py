"""Who issues tokens (JSON Web Tokens) for the tests, and where they are asked for, as OpenID Connect says it."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from spatialstream.servers.kafka import Tokens
from tests.certificates import Files

__all__ = ["Issuer", "TokenEndpoint", "properties", "with_endpoint"]

_NAME, _AUDIENCE, _KEY = "https://issuer.test", "kafka", "one"


def _coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


class Issuer:
    """Signs tokens with a key of its own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    def accepted(self, folder: Path) -> Tokens:
        """What a broker has to know of it, whose tokens it is to take; written to a folder."""
        public = self._key.public_key().public_numbers()
        x, y = (_coded(each.to_bytes(32, "big")) for each in (public.x, public.y))
        key = {"kty": "EC", "crv": "P-256", "kid": _KEY, "use": "sig", "alg": "ES256", "x": x, "y": y}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "keys.json").write_text(json.dumps({"keys": [key]}))
        return Tokens(folder / "keys.json", _NAME, _AUDIENCE)

    def token(self, seconds: float, **more: Any) -> str:
        """A token that ends after so many seconds from now; with claims of its own."""
        now = time.time()
        claims = {"iss": _NAME, "aud": _AUDIENCE, "sub": "someone", "jti": uuid.uuid4().hex, "scope": "streams"}
        claims |= {"iat": int(min(now, now + seconds)) - 1, "exp": int(now + seconds)}
        parts = {"alg": "ES256", "kid": _KEY, "typ": "JWT"}, claims | more
        signed = ".".join(_coded(json.dumps(each).encode()) for each in parts)
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_coded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


class _Server(ThreadingHTTPServer):
    request_queue_size = 128


class TokenEndpoint:
    """Issues tokens over TLS to whoever knows a secret.

    Args:
        issuer: signs them.
        files: of the server.
        client: id and secret of who may ask.
        seconds: how long a token is good.

    Attributes:
        issued: how many there were.
        url: where it is.
    """

    def __init__(self, issuer: Issuer, files: Files, client: tuple[str, str], seconds: float) -> None:
        self.issued, endpoint = 0, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                shown = base64.b64decode(self.headers.get("Authorization", "Basic ").split(" ", 1)[1]).decode()
                given = tuple(unquote(each) for each in shown.split(":", 1))
                if given != client or asked.get("grant_type") != ["client_credentials"]:
                    self._answer(401, {"error": "invalid_client"})
                    return
                endpoint.issued += 1
                token = issuer.token(seconds, scope=asked.get("scope", [""])[0])
                self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": int(seconds)})

            def _answer(self, status: int, answer: dict[str, Any]) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is logged."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        self._server = _Server(("127.0.0.1", 0), Handler)
        # a handshake is for the thread of its connection: nobody waits for another's
        self._server.socket = context.wrap_socket(self._server.socket, True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def properties(path: Path, authority: Path, **more: str) -> Path:
    """A file of properties; names of ``more`` follow ``sasl.oauthbearer.``."""
    own = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in more.items()}
    common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "ssl.ca.location": str(authority)}
    path.write_text("".join(f"{name}={value}\n" for name, value in (common | own).items()))
    return path


def with_endpoint(path: Path, endpoint: TokenEndpoint, authority: Path, client: str, secret: str) -> Path:
    """A file of properties of who asks an endpoint; the authority vouches for it, and for the broker."""
    where = {"method": "oidc", "token_endpoint_url": endpoint.url, "scope": "streams"}
    properties(path, authority, **where, client_id=client, client_secret=secret)
    path.write_text(f"{path.read_text()}https.ca.location={authority}\n")
    return path
