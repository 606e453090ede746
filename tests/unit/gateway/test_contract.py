"""The gateway keeps to its OpenAPI document, by requests that schemathesis makes of it.

What the document says may be sent is taken, what it says may not be is refused, every answer is one that it has, and
none is a failure. The server, and all that decodes, asks and answers, is the real one; topics and slots are in memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import requests
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from spatialstream.client.area_queries import Refreshed
from spatialstream.client.areas import Areas
from spatialstream.client.cursor import PATTERN
from spatialstream.client.record_writer import Sent
from spatialstream.client.stream import RegisteredQueries
from spatialstream.connectors.kafka import Connection
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.body_layouts import CSV
from spatialstream.gateway.following import EVENTS, JSON_LINES
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.openapi import document
from spatialstream.gateway.rates import RateLimits
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84
from spatialstream.store.reports import TimeLimits
from tests.lengths import examples
from tests.unit.client import test_snapshot_client as snapshots
from tests.unit.client.area_log import AreaLog
from tests.unit.client.log import MemoryLog
from tests.unit.gateway import test_writing as writing
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, opener, row
from tests.unit.gateway.test_ask import Opened

ALL, ELSEWHERE = "everything-0123456789", "everything-elsewhere-0123456789"
ANOTHER = f"Bearer {ELSEWHERE}"
CLOCK = 1_000
WITHIN = {"/streams/{stream}/areas/{area}/refresh": "/streams/{stream}/areas/{area}"}
"""Paths that are of another one too: an area may be called ``a/refresh``."""
KNOWN = {"query": "a/b\nc\n", "area": "mitte", "item": "900@0.5945513217757927,0.643705424975316.900-0"}
"""What there is of what paths name."""
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
BEYOND = [
    "is later than the stream's clock",
    "has no term",
    "t: nearly all times lie",
    "(t|at_least|datetime): .*: it looks like (micro)?seconds",
    "cannot be combined with keywords",
    "south .* is greater than north",
    "ends before it begins",
    "datetime: .* is not a time",
    "must be before until",
    "is not a valid (position|page)",
    r"[0-9](\.0|e\+[0-9]+) is not (an integer|a time|a duration)",
    "(lon|lat): ",
    "steps, and a CTQ has at most",
    "step: is 0",
    "an id is itself a key",
    "terms without coordinates",
    "has no column",
    "header: is not a record of columns",
    "is a parameter of text/csv",
    "at: is the time of all objects",
    "time_zone: .* give an IANA name",
    "at: .* is not a time",
    "filter: (is not a JSON object|is not CQL2|the stream declares no properties)",
    "[SC]BQ needs a stream that counts words",
    "is not a name: it has a control character",
    "features?: .*(has no|has the property)|feature [0-9]+.* (has no|has neither)",
    "has no inside; give",
]
"""What no schema can say that is wrong with a request, as it is told: how its fields go together, and what there is."""
ANY_PARAMETER = ("GET /live", "GET /ready", "GET /openapi.json", "GET /asyncapi.json")
"""Whatever probes and tools add to them is passed over."""
DOCUMENT = document([(each.method, each.path, each.right) for each in Gateway([]).endpoints])
OPERATIONS = {
    f"{method.upper()} {path}": each for path, had in DOCUMENT["paths"].items() for method, each in had.items()
}


def has_forms(operation: dict[str, Any]) -> bool:
    """Whether there is anything in its requests that can be wrong."""
    given = [each["schema"] for each in operation["parameters"] if each["in"] != "path"]
    return "requestBody" in operation or any(each != {"type": "string"} for each in given)


def is_beyond(response: Any) -> bool:
    """Whether a request was refused for what no schema can say: that, or that there are no rows at a place any more."""
    if response.status_code == 410:
        return True
    return response.status_code in (400, 406) and any(re.search(each, response.json()["detail"]) for each in BEYOND)


@dataclass
class Taking(writing.Stream):
    """Takes in what it is sent, and has done a round then."""

    slots: snapshots.Stream = field(default_factory=lambda: snapshots.Stream(WGS84))
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def queries(self, *records: dict[str, Any]) -> Sent:
        self.records |= {each["id"]: each for each in records if each["type"] != "CANCEL"}
        sent = super().queries(*records)
        self.slots.round(CLOCK)
        return sent


class Behind(Opened):
    """The stream as it is opened."""

    def __init__(self, stream: Taking) -> None:
        super().__init__(stream.slots.newest, stream.slots.ask, WGS84)
        self._stream = stream
        self.areas = Areas(Connection("nowhere:1"), "s")

    def refresh(self, area: str, *, timeout: float) -> Refreshed:
        self.areas.get(area)
        return Refreshed()

    def limits(self) -> TimeLimits:
        return TimeLimits()

    def queries(self, after: int = -1, limit: int = 100) -> RegisteredQueries:
        names = list(self._stream.registered)
        numbers = range(after + 1, min(len(names), after + 1 + limit))
        found = [parse_query(self._stream.records[names[number]], WGS84).to_record() for number in numbers]
        had = [{"rows": n, "last_row": CLOCK if n else None} for n in numbers]
        return RegisteredQueries(found, numbers[-1] if numbers else None, self.as_of() or {}, had)

    def query(self, name: str) -> RegisteredQueries:
        every = self.queries(limit=10**6)
        found = [i for i, each in enumerate(every.queries) if each["id"] == name]
        queries, had = [every.queries[i] for i in found], [every.so_far[i] for i in found]
        return RegisteredQueries(queries, 0 if found else None, every.as_of, had)


@dataclass
class Api:
    """A gateway, and what makes requests of its document."""

    client: Client
    schemas: dict[GenerationMode, Any]
    session: requests.Session

    def cases(self, name: str, mode: GenerationMode) -> st.SearchStrategy[Any]:
        """Requests for an operation, of the stream that there is."""
        method, path = name.split()
        operation = self.schemas[mode][path][method]
        within = {"stream": "s"} if "{stream}" in path else {}
        known = {each: value for each, value in KNOWN.items() if f"{{{each}}}" in path}
        return st.one_of(
            operation.as_strategy(generation_mode=mode, path_parameters=given or None)
            for given in ([within | known, within] if known else [within])
        )

    def check(self, case: Any, response: Any, *expected: Any) -> None:
        case.validate_response(response, checks=[*CHECKS, *expected])
        early = "at_least" in (case.query or {}) or "many requests are under way" in response.text
        assert response.status_code < 500 or (early and response.status_code == 503), response.text


_HALF = [[[-90, -90], [90, -90], [90, 90], [-90, 90], [-90, -90]], [[0, 0], [1, 0], [0, 1], [0, 0]]]
POLYGONS = [
    {"type": "Polygon", "coordinates": _HALF},
    {"type": "MultiPolygon", "coordinates": [_HALF, [[[170, 0], [190, 0], [180, 9, 100], [170, 0]]]]},
    {"type": "Feature", "properties": None, "geometry": {"type": "Polygon", "coordinates": _HALF[:1]}},
]
LINES = [
    {"type": "LineString", "coordinates": [[0, 60], [90, 60, 5], [170, 0]]},
    {"type": "MultiLineString", "coordinates": [[[0, 0], [1, 1]], [[179, 0], [181, 0]]]},
    {"type": "Feature", "properties": {}, "geometry": {"type": "Point", "coordinates": [0, 90]}},
    {"type": "MultiPoint", "coordinates": [[0, 0], [180, -90]]},
]
COLLECTION = {
    "type": "FeatureCollection",
    "features": [{"type": "Feature", "id": KNOWN["area"], "properties": None, "geometry": POLYGONS[0]}],
}


@schemathesis.serializer(JSON_LINES)
def _lines(context: Any, value: Any) -> bytes:
    """The schema of the document is that of a line."""
    return json.dumps(value).encode()


@schemathesis.serializer(CSV)
def _text(context: Any, value: Any) -> bytes:
    return str(value).encode(errors="replace")


@schemathesis.serializer(GEOJSON)
def _geojson(context: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


def narrowed(schema: Any) -> Any:
    """A schema of what can be sent to this stream, which is on the globe; of boxes, those that meet the equator."""
    if isinstance(schema, list):
        return list(map(narrowed, schema))
    if not isinstance(schema, dict):
        return schema
    lon, lat, south, north = (
        {"type": "number", "minimum": least, "maximum": most}
        for least, most in ((-180, 180), (-90, 90), (-90, 0), (0, 90))
    )
    places = {"at": [lon, lat], "box": [lon, south, lon, north], "circle": [lon, lat, {"type": "number", "minimum": 0}]}
    result = {name: narrowed(each) for name, each in schema.items()}
    for name, numbers in places.items():
        if isinstance(each := result.get(name), dict) and each.get("type") == "array":
            result[name] = each | {"prefixItems": numbers}
    if isinstance(result.get("polygon"), dict):  # rings that are closed and do not cross are hardly drawn
        result["polygon"] = {"enum": [*POLYGONS, *LINES] if "within" in result else POLYGONS}
    if isinstance(result.get("within"), dict):
        result["within"] = {"type": "number", "minimum": 0, "maximum": 1e7}
    if "AreaGeometry" in result:  # the schemas of the document
        result |= {"AreaGeometry": {"enum": POLYGONS}, "AreaCollection": {"enum": [COLLECTION]}, "Area": schema["Area"]}
    if {"where", "fields"} & result.keys() and "keywords" in result:  # it declares no properties, and keeps no fields
        result |= {"where": {"type": "null"}, "fields": {"enum": [[], None]}}
    asked = "refreshed" not in result  # an answer has the area that was asked for, which nobody need know
    if asked and isinstance(each := result.get("area"), dict) and each.get("type") == "string":
        result["area"] = {"enum": [KNOWN["area"]]}
    return result


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    tokens = tmp_path_factory.mktemp("gateway") / "tokens"
    callers = [
        {"name": "all", "token": ALL, "rights": ["ask", "watch", "write"], "streams": ["s"]},
        {"name": "another", "token": ELSEWHERE, "rights": ["ask", "watch", "write"], "streams": ["other"]},
    ]
    tokens.write_text("\n".join(map(json.dumps, callers)))
    stream = Taking()
    stream.room.set()
    stream.slots.round(CLOCK, snapshots.objects(40, 900))
    log = MemoryLog()
    log.add(5, messages([row("q", 1), row("q", 2)], 1, 0))
    behind = served("s", lambda: Behind(stream), opener(stream.results), stream)
    limits = Limits(client=RateLimits(rate=0), wait=20, poll=20, longest_wait=20)  # ms: nothing more will come
    gateway = Gateway([behind], Access(tokens), limits=limits)
    with pytest.MonkeyPatch.context() as patch, serving(gateway) as nobody, requests.Session() as session:
        AreaLog().stand_for_the_broker(patch)
        patch.setattr(ServedStream, "log", lambda _: log)
        client = Client(nobody.port, ALL)
        told = client("GET", "/openapi.json").json
        schemas = {GenerationMode.POSITIVE: narrowed(told), GenerationMode.NEGATIVE: told}
        made = {mode: schemathesis.openapi.from_dict(each) for mode, each in schemas.items()}
        for each in made.values():
            each.config.update(base_url=f"http://127.0.0.1:{client.port}")
        session.headers["Authorization"] = f"Bearer {ALL}"
        yield Api(client, made, session)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_it_says_may_be_sent_is_taken(api: Api, name: str) -> None:
    statuses = Counter[int]()
    forms = [each for each in OPERATIONS[name]["responses"]["200"]["content"] if each != EVENTS]

    def known() -> None:
        answer = api.client("POST", "/streams/s/queries", writing.CRQ | {"id": KNOWN["query"]})
        assert answer.status in (201, 202, 409)
        answer = api.client("PUT", f"/streams/s/areas/{KNOWN['area']}", POLYGONS[0], content_type=GEOJSON)
        assert answer.status in (200, 201)

    @settings(max_examples=examples(20, 200))
    @given(api.cases(name, GenerationMode.POSITIVE), st.sampled_from(forms))
    def is_taken(case: Any, form: str) -> None:
        if case.method == "DELETE":
            known()
        response = case.call(session=api.session, headers={"Accept": form})
        api.check(case, response, *([] if is_beyond(response) else [checks.positive_data_acceptance]))
        statuses[response.status_code] += 1

    known()
    is_taken()
    assert any(200 <= status < 300 for status in statuses), statuses


@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if has_forms(operation)])
def test_what_it_says_may_not_be_sent_is_refused(api: Api, name: str) -> None:
    @settings(max_examples=examples(20, 200))
    @given(api.cases(name, GenerationMode.NEGATIVE))
    def is_refused(case: Any) -> None:
        response = case.call(session=api.session)
        sent = parse_qs(urlsplit(response.request.url).query, keep_blank_values=True)
        is_sent = set(case.query or ()) <= set(sent)  # an empty list is not
        if is_sent and response.text != "Invalid HTTP request received.":  # of headers that cannot be
            api.check(case, response, checks.negative_data_rejection)

    is_refused()


def test_events_are_as_it_says_as_far_as_they_have_come(api: Api) -> None:
    """They have no end, so of each answer the first piece is read."""
    name = "GET /streams/{stream}/results"
    statuses = Counter[int]()

    @settings(max_examples=examples(10, 100))
    @given(api.cases(name, GenerationMode.POSITIVE))
    def begins(case: Any) -> None:
        sent = case.as_transport_kwargs(headers={"Accept": EVENTS})
        with api.session.request(**sent, stream=True, timeout=60.0) as response:
            statuses[response.status_code] += 1
            if response.status_code != 200:
                assert is_beyond(response), response.text
                return
            assert response.headers["content-type"].partition(";")[0] == EVENTS
            assert EVENTS in OPERATIONS[name]["responses"]["200"]["content"]
            first = response.raw.readline(), response.raw.readline(), response.raw.readline()
            assert first[0] == b"retry: 500\n"
            assert re.fullmatch(rb"id: %s\n" % PATTERN.strip("^$").encode(), first[1])
            assert first[2] == b"\n"

    begins()
    assert statuses[200]


def test_a_browser_is_led_to_the_console_as_it_says(api: Api) -> None:
    for path, status in (("/", 307), ("/?f=json", 200)):
        answer = api.client("GET", path, accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert answer.status == status
        assert str(status) in OPERATIONS["GET /"]["responses"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_who_may_not_is_refused_as_it_says(api: Api, name: str) -> None:
    @settings(max_examples=examples(3, 20))
    @given(api.cases(name, GenerationMode.POSITIVE))
    def is_refused(case: Any) -> None:
        for authorization, status in ((None, 401), ("Bearer forged", 401), (f"Basic {ALL}", 401), (ANOTHER, 403)):
            case.headers = {name: each for name, each in case.headers.items() if name.lower() != "authorization"}
            given = {} if authorization is None else {"Authorization": authorization}
            response = case.call(headers=given)
            if "security" not in OPERATIONS[name] or (status == 403 and "{stream}" not in name):
                assert response.status_code == 200
            else:
                assert response.status_code == status, response.text
            api.check(case, response)

    is_refused()


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_a_method_that_it_does_not_have_is_refused(api: Api, path: str) -> None:
    there = {method.upper() for each in (path, WITHIN.get(path, path)) for method in DOCUMENT["paths"][each]}
    names = {"stream": "s", **KNOWN}
    target = path.format_map({name: quote(each, safe="") for name, each in names.items()})
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "X"} - there:
        answer = api.client(method, target)
        assert (answer.status, answer.errors) == (405, [])
        assert {each.strip() for each in answer.headers["allow"].split(",")} - {"HEAD"} == there


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ANY_PARAMETER])
def test_a_parameter_that_it_does_not_have_or_has_once_is_refused(api: Api, name: str) -> None:
    method, path = name.split()
    target = path.format_map({name: quote(each, safe="") for name, each in {"stream": "s", **KNOWN}.items()})
    told = [each["name"] for each in OPERATIONS[name]["parameters"] if each["in"] == "query"]
    many = ("GET /streams/{stream}/results", "query"), ("GET /collections/{stream}/items", "datetime")
    once = [each for each in told if (name, each) not in many]
    for query, parameter in (("limits=1", "limits"), *((f"{each}=1&{each}=1", each) for each in once)):
        answer = api.client(method, f"{target}?{query}", {} if method in ("POST", "PUT") else None)
        assert (answer.status, [each["parameter"] for each in answer.errors]) == (400, [parameter])
