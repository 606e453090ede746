"""``spatialstream gateway``: live streams over HTTP."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError

if TYPE_CHECKING:
    from spatialstream.client import Connection, Results, Stream

__all__ = ["add_parser"]

_MOST_BODY = 15 << 20


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "gateway",
        help="serve live streams over HTTP (--stream NAME,... for several)",
        description="Answers snapshot queries over HTTP. Without --tokens it is read-only, and for this machine alone. "
        "It keeps nothing: any number of them serve the same streams. Runs until it is interrupted.",
    )
    live.add_broker(parser)
    live.add_store(parser)
    add = parser.add_argument_group("the gateway").add_argument
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default %(default)s)")
    add("--port", type=int, default=8080, metavar="PORT", help="and on which port; 0: any (default %(default)s)")
    add("--tokens", type=Path, metavar="FILE", help="who may do what: a token a line, as JSON")
    add("--certificate", type=Path, metavar="FILE", help="serve TLS with this certificate (PEM)")
    add("--key", type=Path, metavar="FILE", help="and its key (PEM)")
    told = "pages of this origin may call it from a browser; may be repeated (default: none)"
    add("--allow-origin", action="append", default=[], metavar="URL", help=told)
    add("--largest-body", type=shared.count, default=8 << 20, metavar="BYTES", help="of a request (default 8 MiB)")
    add("--metrics-port", type=int, default=0, metavar="PORT", help="serve Prometheus metrics there (default: nowhere)")
    add("--metrics-address", default="127.0.0.1", metavar="ADDRESS", help="and on this address (default %(default)s)")
    add("--quiet", action="store_true", help="log nothing but errors")
    parser.set_defaults(function=_gateway)


def _gateway(options: argparse.Namespace) -> int:
    from spatialstream.cli.metrics import serve as serve_metrics
    from spatialstream.client import Inlet
    from spatialstream.gateway import logs
    from spatialstream.gateway.access import Access
    from spatialstream.gateway.app import Gateway, Limits
    from spatialstream.gateway.feed import Feed
    from spatialstream.gateway.metrics import GatewayMetrics
    from spatialstream.gateway.server import check_address, listen, server_of
    from spatialstream.gateway.streams import ServedStream

    names = options.stream.split(",")
    if len(names) > 1 and options.topic:
        raise SettingError("topic", "names the topics of one stream, and there are several; serve that one by itself")
    if options.largest_body > _MOST_BODY:
        raise SettingError("largest-body", f"{options.largest_body} is more than a message may have; give {_MOST_BODY}")
    if (options.certificate is None) != (options.key is None):
        raise SettingError("certificate", "give both --certificate and --key, or neither")
    logs.set_up(quiet=options.quiet)
    access = Access(options.tokens, lambda text: logs.event("tokens", told=text))
    check_address(options.host, local=access.local)
    metrics = GatewayMetrics()
    broker = live.connection(options)
    streams = []
    for name in names:
        feed = Feed(name, partial(_results, broker, name))
        streams.append(ServedStream(name, partial(_opened, options, name), feed, Inlet(broker, name), broker))
    gateway = Gateway(streams, access, metrics, Limits(options.largest_body), options.allow_origin)
    server = server_of(gateway, options.certificate, options.key)
    with listen(options.host, options.port) as sock:
        serve_metrics(metrics.registry, options.metrics_address, options.metrics_port)
        scheme = "http" if options.certificate is None else "https"
        host, port = sock.getsockname()[:2]
        live.say(options, f"gateway of {options.stream} at {scheme}://{f'[{host}]' if ':' in host else host}:{port}/")
        with suppress(KeyboardInterrupt):  # when it has ended in order, the signal that it ended for is sent on
            server.run([sock])
    return 0


def _opened(options: argparse.Namespace, name: str) -> Stream:
    from spatialstream.client import Stream

    with ExitStack() as opened:
        store = opened.enter_context(live.store(argparse.Namespace(**{**vars(options), "stream": name})))
        return Stream(store, opened.pop_all())


def _results(broker: Connection, name: str, start: int) -> Results:
    from spatialstream.client import Results

    return Results(broker, name, start=start)
