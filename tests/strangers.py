"""What somebody gets who knows an address and nothing else; run in a pod it has what is installed there, and no more.

``python strangers.py < PLACES`` tries each of a list of ``[host, port, what]``, as JSON, and prints what is wrong with
each, or null.

Each way to try somebody out (:data:`TRIED`) knows whom it speaks to by what is said, so nothing is taken for something
else: it gives None where that is there and refuses, and otherwise says what is wrong.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress

PATIENCE = 20.0
"""Seconds within which comes what comes at all; who refuses says so, or hangs up, at once."""
SILENT = 2.0
"""Seconds after which who has said nothing is taken to say nothing."""


def unverified() -> ssl.SSLContext:
    """TLS as somebody speaks it who believes everybody, and has nothing to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def said(host: str, port: int, data: bytes, *, tls: bool = False, patience: float | None = None) -> bytes:
    """What is answered to some bytes until it hangs up, or says nothing for so many seconds."""
    answer = b""
    with suppress(OSError), socket.create_connection((host, port), patience or PATIENCE) as plain:
        connection = unverified().wrap_socket(plain) if tls else plain
        with closing(connection):
            connection.sendall(data)
            while part := connection.recv(65536):
                answer += part
                connection.settimeout(SILENT)
    return answer


def speaks_tls(host: str, port: int) -> bool:
    """Whether TLS is spoken there."""
    with (
        suppress(OSError),
        socket.create_connection((host, port), PATIENCE) as plain,
        unverified().wrap_socket(plain) as encrypted,
    ):
        return encrypted.version() is not None
    return False


# ----------------------------------------------------------------------------------------------------------------- HTTP


def get(host: str, port: int, path: str, *, method: str = "GET", token: str = "", tls: bool = False) -> tuple[int, str]:
    """Status and content of an answer over HTTP; 0 if there is none."""
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    how = {"context": unverified()} if tls else {}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    with (
        suppress(OSError, http.client.HTTPException),
        closing(kind(host, port, timeout=PATIENCE, **how)) as connection,
    ):
        connection.request(method, path, b"{}" if method in ("POST", "PUT") else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 20).decode(errors="replace")
    return 0, ""


def metrics(host: str, port: int) -> str | None:
    """Metrics are for everybody who can connect."""
    status, text = get(host, port, "/metrics")
    return None if status == 200 and text.startswith("# HELP") else f"it serves no metrics, but {status} {text[:80]!r}"


def probes(host: str, port: int) -> str | None:
    """What says whether the operator works, and nothing else."""
    found = {path: get(host, port, path) for path in ("/healthz", "/readyz", "/", "/metrics")}
    if {found["/"][0], found["/metrics"][0]} != {404} or not {found["/healthz"][0], found["/readyz"][0]} <= {200, 503}:
        return f"it serves other things than probes: {found}"
    longest = max(len(text) for _, text in found.values())
    return None if longest < 200 else f"its probes say {longest} characters"


OPEN = {
    "GET /live": {200},
    "GET /ready": {200, 503},
    "GET /openapi.json": {200},
    "GET /asyncapi.json": {200},
    "GET /": {200},
    "GET /conformance": {200},
    "GET /console": {307},
    "GET /console/": {200, 503},  # where it has been installed without its parts, it says so
}
"""What a gateway answers to everybody, and with which statuses."""

CLOSED = (
    *("GET /collections", "GET /collections/any", "GET /collections/any/items", "GET /collections/any/items/any"),
    *("GET /collections/any/queryables", "GET /streams/any/areas", "GET /streams/any/areas/any"),
    *("POST /streams/any/areas", "PUT /streams/any/areas/any", "DELETE /streams/any/areas/any"),
    "POST /streams/any/areas/any/refresh",
    *("GET /streams", "GET /streams/any", "POST /streams/any/ask", "GET /streams/any/results?query=any"),
    *("GET /streams/any/results/past?query=any", "GET /streams/any/results/counts?query=any"),
    *("GET /streams/any/queries", "GET /streams/any/queries/any", "POST /streams/any/queries"),
    *("DELETE /streams/any/queries/any", "POST /streams/any/objects", "GET /console/session"),
    *("GET /streams/any/console/objects", "GET /streams/any/console/rejected", "GET /streams/any/console/inside"),
    "GET /streams/any/console/clock",
)
"""What it answers to those alone whom it knows."""


def gateway(host: str, port: int) -> str | None:
    """It knows nobody who does not show a token that it knows, with or without TLS."""
    tls = speaks_tls(host, port)
    wrong = []
    for asked in (*OPEN, *CLOSED):
        method, _, path = asked.partition(" ")
        for token in ("", "a-guess-0123456789"):
            status, text = get(host, port, path, method=method, token=token, tls=tls)
            if status not in OPEN.get(asked, {401}):
                wrong.append(f"{asked} with {token or 'no token'}: {status} {text[:80]!r}")
    if tls and said(host, port, b"GET /live HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200"):
        wrong.append("it answers without TLS too")
    return "; ".join(wrong) or None


# ---------------------------------------------------------------------------------------------------------------- Spark

_RPC, _ONE_WAY, _CHUNK, _STREAM = 3, 9, 0, 6
_RESPONSES = {1: "a block", 4: "an answer", 7: "a file", 12: "blocks"}
"""Kinds of messages (``org.apache.spark.network.protocol.Message``)."""
_FAILURE = 5
_UNKNOWN = b"Unknown challenge message"


def spark(host: str, port: int) -> str | None:
    """Spark's RPC and block servers: who does not begin with the handshake is given nothing, whatever is asked for."""
    call = b"\xac\xed\x00\x05" + b"an object of Java" * 4
    asked = {
        "a call": (_RPC, struct.pack(">qi", 7, len(call)) + call),
        "a message": (_ONE_WAY, struct.pack(">i", len(call)) + call),
        "a block": (_CHUNK, struct.pack(">qi", 0, 0)),
        "a file": (_STREAM, _text("/files/kafka.properties")),
        "a jar": (_STREAM, _text("/jars/application.jar")),
        # what SASL would begin with, which does not encrypt
        "another handshake": (_RPC, struct.pack(">qi", 7, 9) + b"\xea" + _text("none")),
    }
    wrong, refused = list[str](), False
    for name, (kind, body) in asked.items():
        patience = PATIENCE if name == "a call" else SILENT  # it is the one to which something has to be said
        answer = said(host, port, struct.pack(">qb", 9 + len(body), kind) + body, patience=patience)
        kinds = {each for each, _ in _frames(answer)}
        wrong += [f"{name}: {_RESPONSES[each]} came" for each in kinds & _RESPONSES.keys()]
        refused = refused or (name == "a call" and _FAILURE in kinds and _UNKNOWN in answer)
    if not refused:
        wrong.append("it does not say that it knows nobody who does not begin with the handshake")
    if garbage := said(host, port, b"\xff" * 64, patience=SILENT):
        wrong.append(f"garbage: {garbage[:80]!r}")
    return "; ".join(wrong) or None


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) > 9:
        size, kind = struct.unpack_from(">qb", data)
        yield kind, data[9:size]
        data = data[max(9, size) :]


def py4j(host: str, port: int) -> str | None:
    """The way of a driver's Python into its JVM."""
    for command in (b"c\nj\njava.lang.System\nexit\ni1\ne\n", b"A\na guess\n", b"i\njava.lang.Object\ne\n"):
        answer = said(host, port, command, patience=SILENT)
        if not answer.startswith(b"!x"):
            return f"{command!r} is not refused, but answered: {answer[:80]!r}"
    return None


def daemon(host: str, port: int) -> str | None:
    """What starts Python processes for a JVM."""
    answer = said(host, port, _text("a guess"), patience=SILENT)
    # before it reads the secret it says which process it has made for this connection
    return None if answer[4:] == _text("err") else f"a guess is not refused, but answered: {answer[:80]!r}"


def accumulators(host: str, port: int) -> str | None:
    """Where a JVM tells its driver's Python what tasks have counted: a guess gets nothing, not even a refusal."""
    for guess in (b"", b"\0" * 4, b"a guess " * 32, b"GET / HTTP/1.0\r\n\r\n"):
        if answer := said(host, port, guess, patience=SILENT):
            return f"{guess[:8]!r} is answered: {answer[:80]!r}"
    return "it speaks TLS" if speaks_tls(host, port) else None


# --------------------------------------------------------------------------------------------------------------- Flight


def flight(host: str, port: int) -> str | None:
    """The actor registry of a driver, and actors.

    Every call is refused, with or without TLS, with no secret and with a guess.
    """
    import pyarrow as pa
    from pyarrow import flight as arrow

    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    tls = speaks_tls(host, port)
    wrong = list[str]()
    with closing(_client(place, tls=tls)) as client:
        for headers in ([], [(b"authorization", b"Bearer a-guess")], [(b"authorization", b"Basic YTpi")]):
            how = arrow.FlightCallOptions(timeout=PATIENCE, headers=headers)
            for name, call in _calls(client, how):
                try:
                    wrong.append(f"{name} with {headers} is answered: {str(call())[:80]}")
                except Exception as error:  # noqa: BLE001 - whatever else it is, it is no refusal
                    if isinstance(error, arrow.FlightUnauthenticatedError) or "Detail: Unauthenticated" in str(error):
                        continue  # not every method of the client makes one of its errors of it
                    if isinstance(error, arrow.FlightUnavailableError | arrow.FlightTimedOutError):
                        return f"Flight is not spoken there: {str(error)[:80]}"
                    wrong.append(f"{name} with {headers} is not refused: {type(error).__name__} {str(error)[:80]}")
        with suppress(pa.ArrowException, arrow.FlightError):  # there is no such way in
            wrong.append(f"a name and a password: {client.authenticate_basic_token(b'a', b'b')}")
    if tls:
        with closing(_client(place, tls=False)) as client:
            try:
                list(client.do_action(arrow.Action("read_point", b""), arrow.FlightCallOptions(timeout=5.0)))
                wrong.append("it answers without TLS too")
            except arrow.FlightUnauthenticatedError:
                wrong.append("it refuses without TLS too, and so has heard what was said")
            except (pa.ArrowException, arrow.FlightError, OSError):
                pass  # it has understood nothing
    return "; ".join(wrong) or None


def _client(place: str, *, tls: bool) -> object:
    from pyarrow import flight as arrow

    direct = [("grpc.enable_http_proxy", 0)]
    if tls:
        return arrow.FlightClient(f"grpc+tls://{place}", disable_server_verification=True, generic_options=direct)
    return arrow.FlightClient(f"grpc+tcp://{place}", generic_options=direct)


def _calls(client: object, how: object) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every method that Flight has, and every action that anybody has."""
    import pyarrow as pa
    from pyarrow import flight as arrow

    given, place = client, arrow.FlightDescriptor.for_path("anything")
    rows = pa.RecordBatch.from_pydict({"a": [1]})

    def put() -> object:
        writer, _ = given.do_put(place, rows.schema, how)
        try:
            writer.write_batch(rows)
        finally:
            writer.close()
        return "rows were taken"

    def exchange() -> object:
        writer, reader = given.do_exchange(place, how)
        with writer:
            writer.done_writing()
            return reader.read_chunk()

    for name in ("heartbeat", "read_point", "map", "gather", "listed", "end", "anything"):
        yield f"the action {name}", lambda name=name: list(given.do_action(arrow.Action(name, b"{}"), how))
    yield "the list of actions", lambda: given.list_actions(how)
    for ticket in (b"{}", b'{"round": [0, 0], "slots": [0]}\nquestions'):
        yield "rows", lambda ticket=ticket: given.do_get(arrow.Ticket(ticket), how).read_all()
    yield "rows sent", put
    yield "an exchange", exchange
    yield "the list of flights", lambda: list(given.list_flights(b"", how))
    yield "a flight", lambda: given.get_flight_info(place, how)
    yield "a schema", lambda: given.get_schema(place, how)


TRIED: dict[str, Callable[[str, int], str | None]] = {
    "metrics": metrics,
    "probes": probes,
    "interface and console": gateway,
    "Spark's RPC": spark,
    "Spark's blocks": spark,
    "Python's way into the JVM": py4j,
    "Spark's accumulators": accumulators,
    "Spark's daemon of Python": daemon,
    "actor registry": flight,
    "actor": flight,
}
"""What listens, as docs/production.md calls it, and how it is tried out."""


def tried(places: Iterable[tuple[str, int, str]]) -> list[str | None]:
    """What is wrong with each of some hosts, ports and what is said to listen there."""
    return [TRIED[what](host, port) for host, port, what in places]


if __name__ == "__main__":
    print(json.dumps(tried(json.load(sys.stdin))))
