"""Names of servers as a stream's spec gives them, as they have to be asked for from another namespace.

A host without a dot is a service in the stream's namespace: its pods find it by that name, and who is elsewhere, such
as the operator and the gateway, by the name with the namespace. Names with a dot, and addresses, are the same
everywhere.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

__all__ = ["servers_from_outside", "url_from_outside"]


def _is_service(host: str) -> bool:
    return bool(host) and host != "localhost" and not any(sign in host for sign in ".:[")


def servers_from_outside(servers: str, namespace: str) -> str:
    """``host:port,...``, maybe with a path at the end, as it is understood outside the namespace."""
    hosts, slash, path = servers.partition("/")
    found = []
    for server in hosts.split(","):
        host, colon, port = server.strip().partition(":")
        found.append(f"{host}.{namespace}.svc{colon}{port}" if _is_service(host) else server.strip())
    return ",".join(found) + slash + path


def url_from_outside(url: str, namespace: str) -> str:
    """A URL, likewise."""
    parts = urlsplit(url)
    login, at, server = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=login + at + servers_from_outside(server, namespace)))
