"""A client of Prometheus.

Credentials for a server that needs authentication come from files that may be replaced at any time, so they are read
for every query.

Series are identified by ``namespace`` and ``pod``, which all common ways of scraping pods set. A query without a result
yields no value, never zero.
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream_operator.causes import cause, without_login

__all__ = ["Prometheus", "PrometheusAccess", "Sample"]

_TIMEOUT = 10.0
_ACCESS = "SPATIALSTREAM_OPERATOR_PROMETHEUS_ACCESS"
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)")
_TENANTS = frozenset({"x-scope-orgid", "thanos-tenant"})
"""Headers that select a tenant and are no credentials: those of Mimir or Cortex, and of Thanos."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series.

    Attributes:
        labels: labels of the series.
        value: the value; may be infinite, never NaN.
    """

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """Credentials for a server: files in a directory, e.g. a mounted Secret. Each is optional; others are ignored.

    - ``token``: a bearer token;
    - ``ca.crt``: CA certificates (PEM) that verify the server's certificate, in place of the system's;
    - ``headers``: lines ``Name: value``, sent with every query; over plain HTTP only headers that name a tenant.

    Attributes:
        folder: the directory.
    """

    folder: Path

    def check(self, url: str) -> None:
        """Check that the files can be used with a server.

        Raises:
            SettingError: there are none, one has invalid content, or a secret would be sent in plain text.
        """
        if not url:
            problem = "applies to the operator's own Prometheus; set SPATIALSTREAM_OPERATOR_PROMETHEUS_URL too"
            raise SettingError(_ACCESS, problem)
        if not any((self.folder / name).exists() for name in ("token", "ca.crt", "headers")):
            raise SettingError(_ACCESS, f"{self.folder} holds none of the files token, ca.crt and headers")
        self.trust()
        self.headers(url)

    def headers(self, url: str) -> dict[str, str]:
        """The current headers for a query to a server.

        Raises:
            SettingError: a file has invalid content, or a secret would be sent in plain text.
        """
        headers = {}
        for number, line in enumerate(self._text("headers").splitlines(), 1):
            if line.strip():
                matched = _HEADER.fullmatch(line.strip())
                if matched is None:  # the line may be a secret, so it is not shown
                    raise SettingError(_ACCESS, f"{self.folder / 'headers'} line {number} is not 'Name: value'")
                headers[matched[1]] = matched[2]
        path = self.folder / "token"
        if path.exists():
            token = self._text("token").strip()
            if not re.fullmatch(r"[\x21-\x7e]+", token):
                raise SettingError(_ACCESS, f"{path} holds no token; give it alone, on one line")
            headers["Authorization"] = f"Bearer {token}"
        if not url.startswith("https://"):
            for name in headers:
                if name.lower() not in _TENANTS:
                    what = "the token" if name.lower() == "authorization" else f"the header {name}"
                    problem = f"{what} would be sent to {without_login(url)} in plain text; give an https:// URL"
                    raise SettingError(_ACCESS, problem)
        return headers

    def trust(self) -> ssl.SSLContext | bool:
        """The current TLS context that verifies the server; True: the system's authorities.

        Raises:
            SettingError: the file has invalid content.
        """
        if not (self.folder / "ca.crt").exists():
            return True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # requires a certificate with the server's name
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(cadata=self._text("ca.crt"))
            return context
        except (ssl.SSLError, ValueError):
            problem = f"{self.folder / 'ca.crt'} holds no certificate; give it as PEM (-----BEGIN CERTIFICATE-----)"
            raise SettingError(_ACCESS, problem) from None

    def _text(self, name: str) -> str:
        """The content of a file; "" if there is none."""
        try:
            return (self.folder / name).read_bytes().decode("ascii", "ignore")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise SettingError(_ACCESS, f"{self.folder / name} cannot be read: {error.strerror}") from None


class Prometheus:
    """A client of the HTTP API of a Prometheus server.

    Args:
        url: its URL, such as ``http://prometheus:9090``.
        access: credentials for it; None: none.
    """

    def __init__(self, url: str, access: PrometheusAccess | None = None) -> None:
        self._url, self._access = url.rstrip("/"), access
        self._named = f"Prometheus at {without_login(self._url)}"

    async def query(self, expression: str) -> list[Sample]:
        """The instant vector of an expression at the current time.

        Raises:
            Unavailable: there is no response, or no usable one.
        """
        try:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
            access, url = self._access, self._url
            headers, trust = ({}, True) if access is None else (access.headers(url), access.trust())
            place, form = f"{url}/api/v1/query", {"query": expression}
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                # the token must not be sent to another server by a redirect
                session.post(place, data=form, ssl=trust, allow_redirects=access is None) as answer,
            ):
                if answer.status in (401, 403):
                    raise Unavailable(f"{self._named} denies access to the operator ({answer.status})")
                record = await answer.json(content_type=None)
            if record["status"] != "success":
                raise Unavailable(f"{self._named} rejects a query: {record.get('error', 'no reason')}")
            return [
                Sample(series["metric"], value)
                for series in record["data"]["result"]
                if not math.isnan(value := float(series["value"][1]))
            ]
        except SettingError as error:
            raise Unavailable(f"{self._named} cannot be queried: {error}") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"{self._named} cannot be reached: {cause(error)}") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Unavailable(f"{self._named} returned an unexpected response: {cause(error)}") from None

    async def value(self, expression: str) -> float | None:
        """The value of an expression with one series; None if it has none.

        Raises:
            Unavailable: see :meth:`query`.
        """
        samples = await self.query(expression)
        return samples[0].value if samples else None
