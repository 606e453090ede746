"""The OpenAPI document is true: its paths are those that there are, and real answers are as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from spatialstream.client.stream import RegisteredQueries
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.streams import ServedStream
from tests.unit.client.log import MemoryLog
from tests.unit.gateway.http import Answer, Client, served, serving
from tests.unit.gateway.results import messages, opener
from tests.unit.gateway.test_writing import CRQ, LINE, TOKEN, QuerySession, Stream

ROW = {"query": "q", "type": "SKQ", "t": 5, "objects": [{"id": "a", "t": 4, "lon": 1.5, "lat": 2.5, "distance_m": 7.0}]}
SKQ = {"type": "SKQ", "at": [1, 2], "k": 1, "duration": "1h"}


class Answering(QuerySession):
    registered_ids = ("q0", "a/b", "q2")
    most = 10**6
    """Queries of a page, however many are wanted."""

    def read_point(self, timeout: float = 10.0) -> Any:
        routing = SimpleNamespace(active=SimpleNamespace(number=3, slots=4))
        return SimpleNamespace(round=(7, 0), clock=1_000, begun=True, routing=routing)

    def queries(self, after: int = -1, limit: int = 100) -> RegisteredQueries:
        left = range(after + 1, len(self.registered_ids))
        numbers = left[: min(limit, self.most)]
        found = [
            CRQ | {"id": self.registered_ids[number], "t": 5} | ({"by": "anna"} if number else {}) for number in numbers
        ]
        so_far = [{"rows": number, "last_row": 900 if number else None} for number in numbers]
        last, cut = numbers[-1] if numbers else None, self.most < min(limit, len(left))
        return RegisteredQueries(found, last, {"round": 7, "clock": 1_000}, so_far, cut)

    def query(self, name: str) -> RegisteredQueries:
        known = self.queries()
        at = [number for number, each in enumerate(known.queries) if each["id"] == name]
        queries, so_far = [known.queries[number] for number in at], [known.so_far[number] for number in at]
        return RegisteredQueries(queries, at[0] if at else None, known.as_of, so_far)

    def lines(self, records: Any, *given: Any, **more: Any) -> Iterator[str]:
        as_of = self.as_of()
        for _, each in records:
            if each["type"] == "SRQ":
                found = {"id": "a", "t": each.get("t", 5), "lon": 1.5, "lat": 2.5}
                yield json.dumps(ROW | {"type": "SRQ", "objects": [found], "as_of": as_of})
            else:
                yield json.dumps(ROW | {"as_of": as_of})

    def together(self, requests: Any, *given: Any) -> Any:
        return [[line.encode() for line in self.lines(records)] for records, _ in requests]


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    token = {"name": "all", "token": TOKEN, "rights": ["ask", "watch", "write"], "streams": ["s"]}
    (tmp_path / "tokens").write_text(json.dumps(token))
    stream = Stream()
    stream.room.set()
    log = MemoryLog()
    log.add(5, messages([json.dumps(ROW).encode()] * 2, 2, 0))
    monkeypatch.setattr(ServedStream, "log", lambda _: log)
    behind = served("s", lambda: Answering(stream), opener(stream.results), stream)
    return Gateway([behind], Access(tmp_path / "tokens"), limits=Limits(body=5_000))


def check(document: dict[str, Any], method: str, path: str, answer: Answer) -> None:
    """Compare an answer with what the document says about it."""
    responses = document["paths"][path][method.lower()]["responses"]
    told = responses.get(str(answer.status)) or responses[f"{answer.status // 100}XX"]
    form = answer.headers["content-type"].partition(";")[0]
    schema = told["content"][form]["schema"]
    content = answer.body.decode() if "json" not in form or "jsonl" in form else answer.json
    jsonschema.Draft202012Validator(schema | {"components": document["components"]}).validate(content)
    assert {name.lower() for name in told.get("headers", ())} <= answer.headers.keys()


def test_paths_and_schemas_are_those_that_there_are(gateway: Gateway) -> None:
    with serving(gateway) as client:
        document = client("GET", "/openapi.json").json
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(each.method, each.path.replace(":path", "")) for each in gateway.endpoints}
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    protected = {each.path.replace(":path", "") for each in gateway.endpoints if each.right is not None}
    assert protected == {
        path for path, methods in document["paths"].items() for each in methods.values() if "security" in each
    }


def test_answers_are_as_it_says(gateway: Gateway) -> None:
    with serving(gateway) as nobody:
        client = Client(nobody.port, TOKEN)
        document = client("GET", "/openapi.json").json
        ask, results = "/streams/{stream}/ask", "/streams/{stream}/results"
        queries, objects = "/streams/{stream}/queries", "/streams/{stream}/objects"
        for asked in (SKQ, [SKQ, SKQ], {"type": "x"}, [], b"x" * 6_000, b"{"):
            for form in ("application/json", "application/geo+json", "text/html"):
                check(document, "POST", ask, client("POST", "/streams/s/ask", asked, accept=form))
        check(document, "GET", "/ready", client("GET", "/ready"))
        check(document, "GET", "/openapi.json", client("GET", "/openapi.json"))
        for path in ("?query=q&wait=0", "?query=q&position=oldest&wait=0", "?query=q&position=x", ""):
            check(document, "GET", results, client("GET", "/streams/s/results" + path))
        for path in (
            "past?query=q&since=0&limit=1",
            "past?query=q&since=0",
            "counts?query=q",
            "counts?query=q&since=x",
        ):
            part = path.partition("?")[0]
            check(document, "GET", f"{results}/{part}", client("GET", f"/streams/s/results/{path}"))
        for query in (CRQ | {"id": "q"}, CRQ | {"id": "q"}, SKQ):
            check(document, "POST", queries, client("POST", "/streams/s/queries", query))
        for _ in range(2):
            check(document, "POST", queries, client("POST", "/streams/s/queries", CRQ, idempotency_key="k"))
            answer = client("DELETE", f"/streams/s/queries/{quote('q')}")
            check(document, "DELETE", "/streams/{stream}/queries/{query}", answer)
        check(document, "GET", "/live", client("GET", "/live"))
        for path in ("/", "/asyncapi.json", "/conformance", "/collections"):
            check(document, "GET", path, client("GET", path))
        check(document, "GET", "/collections/{stream}", client("GET", "/collections/s"))
        check(document, "GET", "/collections/{stream}/queryables", client("GET", "/collections/s/queryables"))
        for path in ("", "?limit=1&bbox=1,2,3,4", "?bbox=1,2", "?page={}"):
            check(document, "GET", "/collections/{stream}/items", client("GET", "/collections/s/items" + path))
        for name in ("5@1.5,2.5.a", "5.b"):
            check(document, "GET", "/collections/{stream}/items/{item}", client("GET", f"/collections/s/items/{name}"))
        check(document, "GET", "/streams", client("GET", "/streams"))
        check(document, "GET", "/streams/{stream}", client("GET", "/streams/s"))
        for path in ("", "?limit=2", "?limit=2&after=1", "?limit=0", "?after=x"):
            check(document, "GET", queries, client("GET", "/streams/s/queries" + path))
        for name in ("a/b", "other"):
            check(document, "GET", queries + "/{query}", client("GET", f"/streams/s/queries/{quote(name, safe='')}"))
        for lines in (json.dumps(LINE).encode(), b"{}"):
            check(document, "POST", objects, client("POST", "/streams/s/objects", lines))
        check(document, "POST", objects, nobody("POST", "/streams/s/objects", b""))


def test_what_it_says_may_be_sent_is_taken(gateway: Gateway) -> None:
    with serving(gateway) as client:
        schemas = client("GET", "/openapi.json").json["components"]["schemas"]
    known = CRQ | {"id": "q", "t": 5, "by": "anna"}
    for name, good, bad in (
        ("SnapshotQuery", SKQ, CRQ),
        ("RegisteredQuery", CRQ, SKQ),
        ("RegisteredQuery", CRQ | {"by": None}, known),
        ("QueryThatStands", known, CRQ),
        ("Object", LINE, {"id": "a"}),
    ):
        validator = jsonschema.Draft202012Validator(schemas[name])
        assert validator.is_valid(good)
        assert not validator.is_valid(bad)
