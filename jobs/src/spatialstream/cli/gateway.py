"""``spatialstream gateway``: live streams over HTTP."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError
from spatialstream.model.secret_rule import ALLOWED_LABEL, SecretRule

if TYPE_CHECKING:
    from spatialstream.client import Connection, Stream
    from spatialstream.gateway.stream_registry import Place
    from spatialstream.gateway.streams import ServedStream
    from spatialstream.store.zookeeper import ZooKeeperStore

__all__ = ["add_parser"]

_MOST_BODY = 15 << 20


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "gateway",
        help="serve live streams over HTTP (--stream NAME,... for several)",
        description="Serves queries, results and objects of live streams over HTTP. Without --tokens or "
        "--token-review it is read-only and listens on loopback only. It is stateless: any number of gateways can "
        "serve the same streams. Runs until interrupted.",
    )
    live.add_broker(parser, required=False)
    live.add_store(parser)
    add = parser.add_argument_group("in a pod of a Kubernetes cluster").add_argument
    text = "serve the SpatialStreams of these namespaces, as they are created and deleted (*: all), instead of --stream"
    add("--namespaces", metavar="NAME,...", help=text)
    text = f"streams may use this Secret (NAME*: by prefix) without the label {ALLOWED_LABEL}=true; repeatable"
    add("--stream-secret", action="append", default=[], metavar="NAME", help=text)
    text = "authenticate and authorize tokens by the cluster (TokenReview, SubjectAccessReview)"
    add("--token-review", action="store_true", help=text)
    text = "accept only tokens for this audience; may be repeated (default: the API server's own)"
    add("--audience", action="append", default=[], metavar="NAME", help=text)
    add("--api-server-audience", action="store_true", help="with --audience: accept tokens for the API server too")
    add = parser.add_argument_group("the gateway").add_argument
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default %(default)s)")
    add("--port", type=int, default=8080, metavar="PORT", help="port to listen on; 0: any (default %(default)s)")
    add("--tokens", type=Path, metavar="FILE", help="tokens and their rights, one JSON object a line")
    text = "a caller of this name may set by whom a query is registered, as the operator does; may be repeated"
    add("--registrar", action="append", default=[], metavar="NAME", help=text)
    add("--certificate", type=Path, metavar="FILE", help="serve TLS with this certificate (PEM)")
    add("--key", type=Path, metavar="FILE", help="the certificate's key (PEM)")
    text = "pages of this origin may call the gateway from a browser; may be repeated (default: none)"
    add("--allow-origin", action="append", default=[], metavar="URL", help=text)
    text = "trust X-Forwarded-For and -Proto of this proxy address or network; may be repeated"
    add("--trusted-proxy", action="append", default=[], metavar="ADDRESS", help=text)
    text = "largest body of a request (default 8 MiB)"
    add("--largest-body", type=shared.count, default=8 << 20, metavar="BYTES", help=text)
    text = "largest answer; a larger one is refused (default 32 MiB)"
    add("--largest-answer", type=shared.count, default=32 << 20, metavar="BYTES", help=text)
    text = "memory for all requests and answers together; each client has a share (default 256 MiB)"
    add("--memory", type=shared.count, default=256 << 20, metavar="BYTES", help=text)
    text = "requests a second allowed per client; 0: any number (default %(default)s)"
    add("--rate", type=float, default=1_000.0, metavar="N", help=text)
    text = "connections per client that follow results (default %(default)s)"
    add("--connections", type=shared.count, default=1_000, metavar="N", help=text)
    text = "serve Prometheus metrics on this port (default: do not)"
    add("--metrics-port", type=int, default=0, metavar="PORT", help=text)
    text = "address of the metrics (default %(default)s)"
    add("--metrics-address", default="127.0.0.1", metavar="ADDRESS", help=text)
    add("--quiet", action="store_true", help="log only errors")
    parser.set_defaults(function=_gateway)


def _gateway(options: argparse.Namespace) -> int:
    from spatialstream.cli.metrics import serve as serve_metrics
    from spatialstream.gateway import logs
    from spatialstream.gateway.access import Access
    from spatialstream.gateway.app import Gateway, Limits
    from spatialstream.gateway.metrics import GatewayMetrics
    from spatialstream.gateway.rates import RateLimits
    from spatialstream.gateway.reviews import Reviews
    from spatialstream.gateway.server import check_address, listen, server_of
    from spatialstream.gateway.stream_registry import StreamRegistry

    check_options(options)
    logs.set_up(quiet=options.quiet)
    limits = Limits(
        options.largest_body,
        answer=options.largest_answer,
        memory=options.memory,
        client=RateLimits(options.rate, connections=options.connections),
    )
    limits.validate()
    with ExitStack() as closing:
        reviews, directory = None, None
        if options.namespaces is not None:
            from spatialstream.gateway.cluster import Cluster

            cluster = Cluster()
            closing.callback(cluster.close)
            both = options.api_server_audience
            reviews = Reviews(cluster, options.audience, api_server=both) if options.token_review else None
            namespaces = [] if options.namespaces == "*" else options.namespaces.split(",")
            report, rule = lambda text: logs.event("streams", message=text), SecretRule(options.stream_secret)
            directory = StreamRegistry(cluster, at_place, namespaces, report, rule)
        access = Access(options.tokens, lambda text: logs.event("tokens", message=text), reviews)
        check_address(options.host, local=access.local)
        metrics = GatewayMetrics()
        streams = [_named(options, name) for name in options.stream.split(",")] if directory is None else []
        gateway = Gateway(streams, access, metrics, limits, options.allow_origin, directory, options.registrar)
        sock = closing.enter_context(listen(options.host, options.port))
        serve_metrics(metrics.registry, options.metrics_address, options.metrics_port)
        scheme = "http" if options.certificate is None else "https"
        host, port = sock.getsockname()[:2]
        served = options.stream if directory is None else f"the streams of {options.namespaces}"
        address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

        def serving() -> None:
            if sys.stderr.isatty():  # elsewhere all that is there is the log
                live.say(options, f"gateway of {served} at {address}")
            else:
                logs.event("serving", streams=served, address=address)

        proxies = options.trusted_proxy
        server = server_of(gateway, options.certificate, options.key, proxies, serving=serving)
        with suppress(KeyboardInterrupt):  # when it has ended in order, the signal that it ended for is sent on
            server.run([sock])
    return 0


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Raises:
        SettingError: names one of them and says what would be right.
    """
    if (options.stream is None) == (options.namespaces is None):
        raise SettingError("stream", "no stream to serve: give --stream, or in a cluster --namespaces")
    if options.namespaces is None and options.stream_secret:
        raise SettingError("stream-secret", "is for the streams of a cluster; give --namespaces too")
    if options.namespaces is None and (options.token_review or options.audience):
        raise SettingError("token-review", "works only for streams of a cluster; give --namespaces too")
    if options.audience and not options.token_review:
        raise SettingError("audience", "applies only to tokens of the cluster; give --token-review too")
    if options.api_server_audience and not options.audience:
        raise SettingError("api-server-audience", "is the default audience; leave it out, or give --audience too")
    if options.stream is not None and "," in options.stream and options.topic:
        raise SettingError("topic", "cannot be used with several streams; serve the stream with these topics alone")
    if not 0 <= options.rate < float("inf"):
        raise SettingError("rate", f"{options.rate:g} is not a rate; give requests a second, or 0 for any number")
    if options.largest_body > _MOST_BODY:
        problem = f"{options.largest_body} is more than a message can hold; give at most {_MOST_BODY}"
        raise SettingError("largest-body", problem)
    if (options.certificate is None) != (options.key is None):
        raise SettingError("certificate", "give both --certificate and --key, or neither")


def _named(options: argparse.Namespace, name: str) -> ServedStream:
    """Return the stream of this name, reached as the command line says."""
    live.access(options)  # report wrong options now, not at the first request
    return _served(live.connection(options), name, lambda: live.store(_of(options, name)))


def _of(options: argparse.Namespace, name: str) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), "stream": name})


def at_place(place: Place) -> ServedStream:
    """Return the stream of a SpatialStream in the cluster."""
    from spatialstream.client import Connection
    from spatialstream.connectors.kafka_security import read_properties
    from spatialstream.store.tls import TlsTexts
    from spatialstream.store.zookeeper import ZooKeeperStore

    security = {} if place.security is None else read_properties(Path(place.security[1]), place.text_of)
    broker = Connection(place.bootstrap, security, place.topics)
    tls = None
    if place.certificates is not None:
        files, secret, certified = place.certificates
        texts = {name: text.encode() for name, text in files.items()}
        tls = TlsTexts.of_secret(texts, certified, "zookeeper.tlsSecret", secret)
    access: dict[str, Any] = {"credentials": place.credentials, "tls": tls}
    return _served(broker, place.name, lambda: ZooKeeperStore(place.zookeeper, place.name, **access))


def _served(broker: Connection, name: str, store: Callable[[], ZooKeeperStore]) -> ServedStream:
    from spatialstream.client import RecordWriter, Results
    from spatialstream.gateway.feed import Feed
    from spatialstream.gateway.streams import ServedStream

    def opened() -> Stream:
        from spatialstream.client import Stream

        with ExitStack() as closing:
            reached = closing.enter_context(store())
            return Stream(reached, closing.pop_all(), broker, name)

    def results(start: Sequence[int] | int) -> Results:
        return Results(broker, name, start=start)

    return ServedStream(name, opened, Feed(name, results), RecordWriter(broker, name), broker)
