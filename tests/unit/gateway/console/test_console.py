"""The console's pages and data: what is served to whom, under which policy, and what is said when it is not there."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spatialstream.client.live_sample import DeadLetters, Seen
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.console import pages
from spatialstream.gateway.rates import RateLimits
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import Unavailable
from spatialstream.model.kinds import TYPES
from spatialstream.model.objects import SpatialObject
from spatialstream.model.properties.declared import Properties
from spatialstream.model.terms import TermRule
from spatialstream.servers.process import await_condition
from spatialstream.web import FOLDER
from tests.unit.gateway.http import Client, served, serving

ASKER, WATCHER = "may-only-ask-0123", "may-only-watch-0123"
A = SpatialObject("a", 5, 13.5, 52.5, ("hello",))


class Looked:
    """An open stream whose inside is counted how often it is looked at."""

    def __init__(self) -> None:
        self.looks = 0
        declared = Properties.parse(["country:keyword", "priority:number"])
        self.rule = TermRule(ranking=True, properties=declared, fields=("text", "priority"))

    def as_of(self) -> dict[str, int]:
        raise Unavailable("the worker is away")

    def describe(self) -> dict[str, Any]:
        self.looks += 1
        return {"space": "wgs84", "version": 3}

    def close(self) -> None:
        pass


class Passing:
    """The same moment again and again."""

    def __init__(self) -> None:
        self.opened, self.closed, self.text = 0, 0, "hello, “world”\n"

    def take(self, seconds: float, most: int) -> Seen:
        time.sleep(0.01)
        return Seen([(A, self.text)], 40, False)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened() -> Looked:
    return Looked()


@pytest.fixture
def passing() -> Passing:
    return Passing()


@pytest.fixture
def gateway(
    tmp_path: Path, opened: Looked, passing: Passing, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Client]:
    rights = {"ask": ASKER, "watch": WATCHER}
    tokens = [{"name": each, "token": token, "rights": [each], "streams": ["s"]} for each, token in rights.items()]
    (tmp_path / "tokens").write_text("\n".join(map(json.dumps, tokens)))

    def look(_: ServedStream) -> Passing:
        passing.opened += 1
        return passing

    letters = DeadLetters(7, [{"reason": "lon: 500 is out of range"}])
    monkeypatch.setattr(ServedStream, "live_sample", look)
    monkeypatch.setattr(ServedStream, "dead_letters", lambda _, most: letters)
    limits, access = getattr(request, "param", Limits()), Access(tmp_path / "tokens", recheck=0.0)
    with serving(Gateway([served("s", lambda: opened), served("other")], access, limits=limits)) as client:  # type: ignore[arg-type,return-value]
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A console of a few files."""
    for name, content in {"static/index.html": "<p>page", "static/a.js": "1", "vendor/map.mjs": "2" * 2000}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "secret").write_text("secret")
    return tmp_path


def test_pages_come_under_a_policy_that_lets_nothing_else_in(gateway: Client) -> None:
    for path, accept in (("/", "text/html,*/*;q=0.8"), ("/console", "*/*")):
        home = gateway("GET", path, accept=accept)
        assert (home.status, home.headers["location"]) == (307, "/console/")
    assert "links" in gateway("GET", "/", accept="application/json, text/html;q=0.5").json, "what programs find"
    script = gateway("GET", "/console/main.js")
    assert script.status == 200
    assert script.headers["content-type"].startswith("text/javascript")
    policy = script.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert script.headers["x-content-type-options"] == "nosniff"
    again = gateway("GET", "/console/main.js", if_none_match=script.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert gateway("GET", "/console/web/dom.js").status == 200
    packed = gateway("GET", "/console/main.js", accept_encoding="gzip, br")
    assert gzip.decompress(packed.body) == script.body


def test_a_page_knows_the_kinds_of_queries_from_the_gateway(gateway: Client) -> None:
    module = gateway("GET", "/console/kinds.js")
    assert module.headers["content-type"].startswith("text/javascript")
    known = json.loads(module.body.removeprefix(b"export const KINDS = ").removesuffix(b";\n"))
    assert [*known] == [*TYPES]
    assert known["CKQ"] == {
        "title": "Nearest, continuous",
        "selects": "Nearest",
        "continuous": True,
        "required": ["at", "k"],
        "fields": ["at", "k", "keywords", "any", "none", "where", "duration", "by", "window", "fields"],
        "rows": "objects",
    }
    assert gateway("GET", "/console/kinds.js", if_none_match=module.headers["etag"]).status == 304


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    static = Path(pages.__file__).parent / "static"
    page = (static / "index.html").read_text()
    scripts = re.findall(r"<script\b.*?</script>", page, re.DOTALL)
    assert scripts == ['<script src="begin.js"></script>', '<script type="module" src="main.js"></script>']
    assert page.count("<script") == len(scripts)
    assert "<style" not in page
    assert "style=" not in page
    for path in [*static.iterdir(), *FOLDER.iterdir()]:
        assert "http://" not in path.read_text().replace("http://www.w3.org/", ""), path
        assert "https://" not in path.read_text(), path


def test_nothing_but_the_pages_is_served(folder: Path, gateway: Client) -> None:
    (folder / "static" / "link").symlink_to(folder / "secret")
    (folder / "vendor" / "console.lock").touch()
    names = [
        "../secret",
        "static/../../secret",
        "vendor/../secret",
        "web/../__init__.py",
        "web",
        "%2e%2e/secret",
        "link",
        "vendor",
        "no",
        "a" * 5000,
    ]
    for name in [*names, "a\0b", "/etc/passwd", "vendor//etc/passwd", "web//etc/passwd"]:
        assert pages.Pages(folder).find(name) is None, name
    assert gateway("GET", "/console/../../gateway/app.py").status == 404
    assert gateway("GET", "/console/vendor/../__init__.py").status == 404


def test_what_is_missing_is_said_with_what_to_do(folder: Path) -> None:
    with serving(Gateway([], pages=pages.Pages(folder))) as client:
        page = client("GET", "/console/")
        assert page.status == 503
        assert b"make console" in page.body
        (folder / "vendor" / "console.lock").touch()
        assert client("GET", "/console/").body == b"<p>page"
        (folder / "static" / "index.html").write_text("<p>another page")
        assert client("GET", "/console/").body == b"<p>another page"
        assert len(client("GET", "/console/vendor/map.mjs").body) == 2000


def test_a_session_says_what_its_token_may(gateway: Client) -> None:
    assert gateway("GET", "/console/session").status == 401
    said = Client(gateway.port, ASKER)("GET", "/console/session").json
    assert said["streams"] == [{"name": "s", "rights": ["ask"]}]
    assert said["caller"] == "ask"
    with serving(Gateway([served("s")])) as everybody:
        said = everybody("GET", "/console/session").json
        assert (said["tokens"], said["streams"]) == (False, [{"name": "s", "rights": ["ask", "watch"]}])


def test_data_needs_the_right_to_it(gateway: Client) -> None:
    needs = {"objects": WATCHER, "rejected": WATCHER, "inside": ASKER}
    for path, wrong in needs.items():
        assert Client(gateway.port)("GET", f"/streams/s/console/{path}").status == 401
        assert Client(gateway.port, wrong)("GET", f"/streams/s/console/{path}").status == 403
        assert Client(gateway.port, ASKER)("GET", f"/streams/other/console/{path}").status == 403
    letters = Client(gateway.port, ASKER)("GET", "/streams/s/console/rejected").json
    assert letters == {"count": 7, "newest": [{"reason": "lon: 500 is out of range"}]}


def test_the_inside_is_looked_at_once_for_all(gateway: Client, opened: Looked) -> None:
    client = Client(gateway.port, WATCHER)
    found = [client("GET", "/streams/s/console/inside").json for _ in range(5)]
    assert found[0]["version"] == 3
    assert (found[0]["as_of"], found[0]["answers"]) == (None, False)  # the worker is away, the store is not
    assert opened.looks < 5 or found[0]["now"] != found[-1]["now"]


def test_who_only_asks_is_told_how_far_the_stream_is_and_no_more(gateway: Client) -> None:
    session, watcher = (Client(gateway.port, token) for token in (ASKER, WATCHER))
    clock = session("GET", "/streams/s/console/clock")
    assert clock.status == 200
    assert {**clock.json, "now": None} == {
        "space": "wgs84",
        "properties": {"country": "keyword", "priority": "number"},
        "fields": ["text", "priority"],
        "ranking": True,
        "as_of": None,
        "answers": False,
        "now": None,
    }
    assert clock.headers["cache-control"] == "no-store"
    assert session("GET", "/streams/s/console/inside").status == 403
    assert watcher("GET", "/streams/s/console/clock").status == 403
    assert session("GET", "/streams/s/console/clock?at=5").status == 400


def test_objects_pass_while_somebody_looks(gateway: Client, passing: Passing) -> None:
    client = Client(gateway.port, ASKER)
    for _ in range(2):  # who looks later is told of what comes then
        with closing(client.connection()) as connection:
            connection.request("GET", "/streams/s/console/objects", headers=client.headers({}))
            response = connection.getresponse()
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.readline() == b"retry: 1000\n"
            line = b""
            while not line.startswith(b"data: "):
                line = response.readline()
            event = json.loads(line[6:])
            assert abs(event.pop("at") - time.time() * 1000) < 60_000
            assert event == {"count": 40, "exact": False, "objects": [["a", 5, 13.5, 52.5, "hello, “world”\n"]]}
    assert await_condition(lambda: passing.closed == passing.opened >= 1, 30.0)


@contextmanager
def look(client: Client, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
    """Look at objects as they pass; of what comes nothing has been read."""
    with closing(client.connection()) as connection:
        connection.request(method, "/streams/s/console/objects", headers=client.headers({}))
        with connection.getresponse() as answer:
            yield answer


@pytest.mark.parametrize("gateway", [Limits(recheck=0.05)], indirect=True)
def test_who_may_see_no_more_is_let_go(gateway: Client, passing: Passing, tmp_path: Path) -> None:
    with look(Client(gateway.port, ASKER)) as answer:
        assert answer.readline() == b"retry: 1000\n"
        tokens = (tmp_path / "tokens").read_text().splitlines()
        (tmp_path / "tokens").write_text(tokens[1])
        assert b"data: " in answer.read(), "to its end"
    assert await_condition(lambda: passing.closed == passing.opened, 30.0)
    assert Client(gateway.port, ASKER)("GET", "/streams/s/console/objects").status == 401


def test_one_client_looks_by_a_few_connections(gateway: Client, passing: Passing, tmp_path: Path) -> None:
    limits = Limits(client=RateLimits(connections=2), looking=1)
    with serving(Gateway([served("s")], Access(tmp_path / "tokens"), limits=limits)) as nobody:
        client = Client(nobody.port, ASKER)
        with look(client, "HEAD") as head:
            assert (head.status, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
            assert passing.opened == 0
        with look(client) as answer:
            assert answer.readline() == b"retry: 1000\n"
            refused = client("GET", "/streams/s/console/objects")
            assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        assert await_condition(lambda: passing.closed == passing.opened, 30.0)
        with look(client) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("gateway", [Limits(stalled=0.2)], indirect=True)
def test_who_takes_no_objects_is_let_go(gateway: Client, passing: Passing) -> None:
    passing.text = "x" * 1_000_000
    with look(Client(gateway.port, ASKER)) as answer:
        assert await_condition(lambda: passing.closed == passing.opened >= 1, 30.0)
        assert answer.status == 200
