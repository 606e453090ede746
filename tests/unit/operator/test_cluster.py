"""The client of the API server, where answers are late, cut off, of another form, or none: a server that plays it."""

import asyncio
import contextlib
import json
import pickle
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spatialstream_operator.cluster import ApiError, Cluster, ClusterError
from tests.unit.operator.garbled import garbled

LEASES = "/apis/coordination.k8s.io/v1/namespaces/geo/leases"


class PlayedServer:
    """An API server that answers as a test says: with status and body; with bytes as they are; or not, for a while.

    Attributes:
        asked: method and path of all requests.
        most: how many requests were under way at a time at the most.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.most = self.under_way = 0
        self.answer: Callable[[str], tuple[int, Any]] = lambda path: (200, {})
        self.lock = threading.Lock()
        played = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _play(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with played.lock:
                    played.asked.append((self.command, self.path))
                    played.under_way += 1
                    played.most = max(played.most, played.under_way)
                status, body = played.answer(self.path)
                with played.lock:
                    played.under_way -= 1
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _play  # noqa: N815 (names that the library calls)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[PlayedServer]:
    played = PlayedServer()
    yield played
    played.close()


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """Makes a client of a server, as the user's kubeconfig names it."""

    def make(url, user=None, **settings) -> Cluster:
        named = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        config = {"contexts": [named], "current-context": "it", "users": [{"name": "it", "user": user or {}}]}
        config["clusters"] = [{"name": "it", "cluster": {"server": url}}]
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        return Cluster(**settings)

    return make


def failure(cluster):
    """What asking for a lease raises."""

    async def main():
        with pytest.raises(ClusterError) as caught:
            await cluster.get("Lease", "it", "geo")
        await cluster.close()
        return caught.value

    return asyncio.run(main())


def test_an_answer_that_does_not_come_is_an_error_in_time_and_the_same_each_time(server, connect):
    over = threading.Event()
    server.answer = lambda path: (200, over.wait(60.0))

    errors = {str(failure(connect(server.url, timeout=0.2))) for _ in range(2)}
    over.set()

    assert errors == {"cannot query the API server: no response within 0.2 s"}
    assert server.asked == [("GET", f"{LEASES}/it")] * 2, "nothing is asked again behind the caller's back"


def test_an_answer_that_stops_in_the_middle_is_an_error_in_time(connect):
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cluster = connect(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=0.2)

        def begin() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"metadata')
                connection.recv(65536)
                over.wait(60.0)

        threading.Thread(target=begin, daemon=True).start()

        assert str(failure(cluster)) == "cannot query the API server: no response within 0.2 s"
        over.set()


def test_a_server_that_is_not_there_is_an_error_and_the_same_each_time(server, connect):
    server.close()

    one, other = failure(connect(server.url)), failure(connect(server.url))

    assert str(one) == str(other)
    assert "Connection refused" in str(one)
    assert (one.code, isinstance(one, ApiError)) == (0, False)


@pytest.mark.parametrize("token", ["secret\n", "secret\r\nX-Other: 1", "secret\x00", "secr\u00e9t"])
def test_a_token_that_cannot_be_sent_is_not_shown(server, connect, token):
    error = failure(connect(server.url, {"token": token}))

    assert str(error) == "cannot query the API server: the token is not one line of printable ASCII"
    assert (error.__cause__, server.asked) == (None, [])


def test_a_token_is_not_shown_where_the_answer_is_none(connect):
    async def main():
        async with garbled() as url:
            cluster = connect(url, {"token": "secret"})
            with pytest.raises(ClusterError, match="cannot query the API server: ") as caught:
                await cluster.get("Lease", "it", "geo")
            await cluster.close()
            return "".join(traceback.format_exception(caught.value))

    assert "secret" not in asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (404, b"404 page not found\n", 404, "the API server returned 404: 404 page not found"),
        (502, b"<html>Bad Gateway</html>", 502, "the API server returned 502: <html>Bad Gateway</html>"),
        (503, {"items": []}, 503, 'the API server returned 503: {"items": []}'),
        (200, b"<html>Sign in</html>", 200, "the API server returned 200: <html>Sign in</html>"),
        (301, b"", 301, "the API server returned 301: "),
    ],
)
def test_what_is_no_answer_of_the_api_does_not_say_that_there_is_nothing(server, connect, status, body, code, text):
    server.answer = lambda path: (status, body)

    error = failure(connect(server.url))

    assert (error.code, str(error), isinstance(error, ApiError)) == (code, text, False)


def test_a_refusal_is_told_in_the_servers_own_words(server, connect):
    server.answer = lambda path: (403, {"kind": "Status", "message": 'leases "it" is forbidden', "code": 403})

    error = failure(connect(server.url))

    assert isinstance(error, ApiError)
    assert (str(error), error.code, error.is_forbidden) == ('leases "it" is forbidden', 403, True)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), copied.code) == (ApiError, str(error), 403)


@pytest.mark.parametrize(
    ("code", "refusal", "hindered"),
    [
        *((code, True, True) for code in (400, 403, 413, 422)),
        (500, False, True),
        *((code, False, False) for code in (401, 404, 409, 429, 503)),
    ],
)
def test_refusals_are_told_from_what_may_succeed_later(code, refusal, hindered):
    error = ApiError("no", code)

    assert (error.is_refusal, error.is_hindered) == (refusal, hindered)


def test_a_list_that_is_too_old_to_go_on_with_is_asked_for_as_a_whole(server, connect):
    def answer(path):
        if "continue=" in path:
            return 410, {"kind": "Status", "message": "the continue token is too old", "code": 410}
        return 200, {"items": ["one"], "metadata": {"continue": "rest"}} if "limit=" in path else whole

    whole = {"items": ["one", "two"], "metadata": {"continue": ""}}  # as it is in lists of custom resources
    server.answer = answer
    cluster = connect(server.url)

    async def main():
        found = await cluster.list("Lease", "geo", {"of": "quakes"}, {"metadata.name": "it"})
        await cluster.close()
        return found

    assert asyncio.run(main()) == ["one", "two"]
    selected = "labelSelector=of%3Dquakes&fieldSelector=metadata.name%3Dit"
    assert [path for _, path in server.asked] == [
        f"{LEASES}?{selected}&limit=500",
        f"{LEASES}?{selected}&limit=500&continue=rest",
        f"{LEASES}?{selected}",
    ]


STREAMS = "/apis/spatialstream.dev/v1alpha1"
OTHERS = {"versions": [{"groupVersion": "apps/v1"}]}
OURS = {"versions": [{"groupVersion": "spatialstream.dev/v1beta1"}, {"groupVersion": "spatialstream.dev/v1alpha1"}]}
OLDER = {"versions": [{"groupVersion": "spatialstream.dev/v1beta1"}]}
NAMES = ("spatialqueries", "spatialstreams/status", "spatialstreams")
RESOURCES = {"resources": [{"name": name, "verbs": ["list", name]} for name in NAMES]}
KNOWN, NONE = frozenset({"list", "spatialstreams"}), frozenset()


@pytest.mark.parametrize(
    ("groups", "status", "resources", "told"),
    [
        ([OTHERS, OURS], 200, RESOURCES, KNOWN),
        ([OTHERS], 200, RESOURCES, NONE),
        ([OTHERS, OLDER], 200, RESOURCES, NONE),
        ([OTHERS, OURS], 404, b"404 page not found\n", NONE),
        ([OTHERS, OURS], 200, {"resources": RESOURCES["resources"][:2]}, NONE),
    ],
    ids=["told", "no group", "another version", "no resources", "other resources"],
)
def test_a_resource_is_told_of_where_both_its_group_and_itself_are(server, connect, groups, status, resources, told):
    server.answer = {"/apis": (200, {"groups": groups}), STREAMS: (status, resources)}.__getitem__

    async def main():
        cluster = connect(server.url)
        found = await cluster.verbs("SpatialStream")
        await cluster.close()
        return found

    assert asyncio.run(main()) == told


def test_an_error_is_not_the_word_that_a_resource_is_not_there(server, connect):
    server.answer = {"/apis": (200, {"groups": [OURS]}), STREAMS: (503, b"later")}.__getitem__

    async def main():
        cluster = connect(server.url)
        with pytest.raises(ClusterError, match="later"):
            await cluster.verbs("SpatialStream")
        await cluster.close()

    asyncio.run(main())


def test_a_name_cannot_lead_elsewhere(server, connect):
    cluster = connect(server.url)

    async def main():
        await cluster.get("Secret", "zk/../../other?watch=1", "geo")
        await cluster.close()

    asyncio.run(main())

    assert server.asked == [("GET", "/api/v1/namespaces/geo/secrets/zk%2F..%2F..%2Fother%3Fwatch%3D1")]


def test_requests_wait_in_threads_of_which_there_are_no_more_than_are_given(server, connect):
    go_on = threading.Event()
    server.answer = lambda path: (200, {} if go_on.wait(60.0) else None)
    cluster = connect(server.url, threads=3)

    async def main():
        asking = asyncio.gather(*(cluster.get("Lease", f"lease-{number}", "geo") for number in range(12)))
        while server.most < 3:
            await asyncio.sleep(0.01)  # the event loop goes on meanwhile
        await asyncio.sleep(0.1)  # in which a fourth would come
        go_on.set()
        assert await asking == [{}] * 12
        await cluster.close()

    asyncio.run(main())
    assert server.most == 3


def test_what_is_given_up_before_its_turn_is_never_sent_and_the_end_waits_for_what_is_under_way(server, connect):
    begun, go_on = threading.Event(), threading.Event()

    def answer(path):
        begun.set()
        go_on.wait(60.0)
        return 200, {}

    server.answer = answer
    cluster = connect(server.url, threads=1)

    async def main():
        asking = [asyncio.create_task(cluster.get("Lease", name, "geo")) for name in ("under-way", "waiting")]
        await asyncio.to_thread(begun.wait, 60.0)
        for each in asking:
            each.cancel()
        await asyncio.wait(asking)
        closing = asyncio.create_task(cluster.close())
        await asyncio.sleep(0.1)
        assert not closing.done()
        go_on.set()
        await closing

    asyncio.run(main())
    assert server.asked == [("GET", f"{LEASES}/under-way")]
    assert not [each for each in threading.enumerate() if each.name.startswith("kubernetes")]
