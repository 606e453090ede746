"""Server addresses of a stream's spec, resolved from outside the stream's namespace.

A host without a dot is a Kubernetes service in the stream's namespace. The stream's pods reach it by that name; clients
in other namespaces, such as the operator and the gateway, need the name with the namespace. Names with a dot and IP
addresses are the same everywhere.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

__all__ = ["servers_from_outside", "url_from_outside"]


def _is_service(host: str) -> bool:
    return bool(host) and host != "localhost" and not any(sign in host for sign in ".:[")


def servers_from_outside(servers: str, namespace: str) -> str:
    """Qualify the service names of ``host:port,...`` (optionally with a path at the end) with the namespace."""
    hosts, slash, path = servers.partition("/")
    found = []
    for server in hosts.split(","):
        host, colon, port = server.strip().partition(":")
        found.append(f"{host}.{namespace}.svc{colon}{port}" if _is_service(host) else server.strip())
    return ",".join(found) + slash + path


def url_from_outside(url: str, namespace: str) -> str:
    """Qualify the service name of a URL with the namespace."""
    parts = urlsplit(url)
    login, at, server = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=login + at + servers_from_outside(server, namespace)))
