"""SpatialAreas with a real API server, a real gateway, and the operator under its own account between them."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest
import yaml

from spatialstream.client.areas import Areas
from spatialstream.connectors.kafka import Connection
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.reviews import Reviews
from tests.api.client import GROUP, RefusalError, eventually
from tests.api.installation import install, token_of
from tests.api.operators import OperatorProcess
from tests.api.resources import merged, stream, streams
from tests.api.test_gateway import cluster_of
from tests.api.test_queries import AUDIENCE, TABLE
from tests.unit.client.area_log import AreaLog
from tests.unit.gateway.http import served, serving
from tests.unit.gateway.results import opener
from tests.unit.gateway.test_writing import Stream
from tests.unit.operator.test_gateway import Registering

ROOT = Path(__file__).parents[2]
SPACE = "sarea-geo"
RING = [[0, 0], [8, 0], [8, 8], [0, 0]]
SQUARE = {"type": "Polygon", "coordinates": [[*RING[:3], [0, 8], [0, 0]]]}
AREA = {"stream": "quakes", "geometry": SQUARE}
NAMED = AREA | {"name": "Tempelhof-Schöneberg"}
KEPT = {"area", "digest", "revision", "vertices"}


def areas(name="", space=SPACE):
    return f"{GROUP}/namespaces/{space}/spatialareas" + (f"/{name}" if name else "")


def wanted(name, spec, space=SPACE):
    about = {"name": name, "namespace": space}
    return {"apiVersion": "spatialstream.dev/v1alpha1", "kind": "SpatialArea", "metadata": about, "spec": spec}


def ring(vertices):
    """A polygon of as many vertices."""
    turns = [2 * math.pi * i / vertices for i in range(vertices)]
    ring = [[13.4 + math.cos(turn) / 10, 52.5 + math.sin(turn) / 10] for turn in turns]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


@pytest.fixture(scope="module")
def space(namespace):
    return namespace(SPACE)


@pytest.mark.parametrize(
    "spec",
    [
        AREA,
        NAMED,
        AREA | {"name": "a/b 'c' \\d"},
        AREA | {"name": "ä" * 100},
        AREA | {"geometry": {"type": "MultiPolygon", "coordinates": [[RING], [RING, RING]]}},
        AREA | {"geometry": ring(10_000)},
    ],
)
def test_a_right_spec_is_accepted_as_it_is(api, space, spec):
    made = api.post(f"{areas()}?fieldValidation=Strict&dryRun=All", wanted("right", spec))
    assert made["spec"] == spec


def test_the_examples_are_accepted(api, namespace):
    namespace("geo")
    page = (ROOT / "docs/areas.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    for each in (*yaml.safe_load_all((ROOT / "examples/areas.yaml").read_text()), yaml.safe_load(shown)):
        each["metadata"]["namespace"] = "geo"
        plural = "spatialareas" if each["kind"] == "SpatialArea" else "spatialqueries"
        api.post(f"{GROUP}/namespaces/geo/{plural}?fieldValidation=Strict&dryRun=All", each)


REFUSED = [
    ({"stream": None}, "spec.stream: Required value"),
    ({"stream": ""}, "spec.stream"),
    ({"stream": "s" * 41}, "spec.stream: Too long"),
    ({"geometry": None}, "spec.geometry: Required value"),
    ({"geometry": {"type": None}}, "spec.geometry.type: Required value"),
    ({"geometry": {"coordinates": None}}, "spec.geometry.coordinates: Required value"),
    ({"geometry": {"coordinates": []}}, "spec.geometry.coordinates"),
    ({"geometry": {"coordinates": "here"}}, "spec.geometry.coordinates"),
    ({"geometry": {"coordinates": {"0": RING}}}, "spec.geometry.coordinates"),
    *(
        ({"geometry": {"type": each}}, "Unsupported value")
        for each in ("Point", "LineString", "Feature", "polygon", "")
    ),
    ({"name": ""}, "spec.name"),
    ({"name": " mitte"}, "must be printable text without a space at an end"),
    ({"name": "mitte\t"}, "must be printable text without a space at an end"),
    ({"name": "a\nb"}, "must be printable text without a space at an end"),
    ({"name": "a\x7fb"}, "must be printable text without a space at an end"),
    ({"name": "a" * 201}, "spec.name: Too long"),
    ({"name": "ä" * 101}, "must have 1 to 200 bytes in UTF-8"),
    ({"name": 7}, "spec.name"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_a_wrong_spec_is_refused_with_a_sentence(api, space, change, message):
    with pytest.raises(RefusalError) as refusal:
        api.post(f"{areas()}?fieldValidation=Strict&dryRun=All", wanted("wrong", merged(AREA, change)))
    assert refusal.value.code in (400, 422)
    assert message in refusal.value.message


def test_specs_with_several_things_wrong_are_refused_all_the_same(api, space):
    """200 of them, each of two or three changes of the table in one spec."""
    draw, refused = random.Random(33), 0
    for _ in range(200):
        spec, told = AREA, list[str]()
        for change, message in draw.sample(REFUSED, draw.choice((2, 3))):
            spec = merged(spec, change)
            told.append(message)
        with pytest.raises(RefusalError) as refusal:
            api.post(f"{areas()}?fieldValidation=Strict&dryRun=All", wanted("wrong", spec))
        assert refusal.value.code in (400, 422), spec
        refused += any(each in refusal.value.message for each in told)
    assert refused == 200, "one of the reasons at least is told"


def test_a_name_that_no_area_can_have_is_given_in_the_spec(api, space):
    long = "a" * 201
    with pytest.raises(RefusalError, match=r"give spec\.name"):
        api.post(f"{areas()}?dryRun=All", wanted(long, AREA))
    api.post(f"{areas()}?dryRun=All", wanted(long, NAMED))


@pytest.mark.parametrize(
    ("before", "change"),
    [(AREA, {"stream": "ships"}), (AREA, {"name": "x"}), (NAMED, {"name": "x"}), (NAMED, {"name": None})],
)
def test_stream_and_name_cannot_be_changed_and_the_geometry_can(api, namespace, before, change):
    namespace("sarea-fixed")
    path = areas("fixed", "sarea-fixed")
    api.post(areas(space="sarea-fixed"), wanted("fixed", before, "sarea-fixed"))
    try:
        with pytest.raises(RefusalError, match="delete this SpatialArea and create another one"):
            api.patch(f"{path}?dryRun=All", {"spec": change})
        api.patch(f"{path}?dryRun=All", {"spec": {"geometry": ring(5)}})
    finally:
        api.vanish(path)


class Wished:
    """A SpatialArea of a test's own."""

    def __init__(self, api, name, spec):
        self.api, self.name, self.path = api, name, areas(name)
        api.post(areas(), wanted(name, spec))

    @property
    def status(self):
        return self.api.get(self.path).get("status") or {}

    def says(self, status, reason):
        def found():
            body = self.api.get(self.path)
            told = (body.get("status") or {}).get("conditions") or [{}]
            current = told[0].get("observedGeneration") == body["metadata"]["generation"]
            return current and (told[0].get("status"), told[0].get("reason")) == (status, reason) and told[0]

        return eventually(found, f"it is {status} {reason}", now=lambda: self.status)

    def gone(self):
        self.api.delete(self.path)
        eventually(lambda: self.api.find(self.path) is None, "it is gone", now=lambda: self.status)


@pytest.fixture(scope="module")
def known():
    """The areas of the stream ``quakes``, as a client that was there before everybody else sees them."""
    log = AreaLog(f"{SPACE}.quakes")
    with pytest.MonkeyPatch.context() as patch:
        log.stand_for_the_broker(patch)
        yield Areas(Connection("nowhere:1"), f"{SPACE}.quakes")


class Behind(Registering):
    """The stream, as the gateway opens it."""

    def __init__(self, stream):
        super().__init__(stream)
        self.areas = Areas(Connection("nowhere:1"), f"{SPACE}.quakes")


@pytest.fixture(scope="module")
def operator(tmp_path_factory, server, api, namespace, process, known, space):
    """An operator with a gateway, as the chart installs them; the one of all namespaces does not run meanwhile."""
    process.kill()
    values = {"watch": {"namespaces": [SPACE]}, "crds": {"install": False}, "rbac": {"aggregate": False}}
    installed = install(api, namespace, "sarea", "sarea-system", values)
    folder = tmp_path_factory.mktemp("sarea")
    (folder / "token").write_text(token_of(api, installed.namespace, installed.account, AUDIENCE))
    cluster = cluster_of(server, token_of(api, installed.namespace, installed.gateway))
    behind = Stream()
    served_here = served(f"{SPACE}.quakes", lambda: Behind(behind), opener(behind.results), behind)
    access = Access(reviews=Reviews(cluster, [AUDIENCE], api_server=True))
    with serving(Gateway([served_here], access, registrars=[installed.user])) as gateway:
        settings = {"NAMESPACES": SPACE, "GATEWAY_SERVICE": f"http://127.0.0.1:{gateway.port}"}
        settings["GATEWAY_TOKEN"] = str(folder / "token")
        with OperatorProcess(folder, server, installed.token(api), installed.namespace, **settings) as started:
            eventually(lambda: started.ready, "the operator is at work")
            yield started
            for kind in (areas(), streams(SPACE)):
                for each in api.list(kind):
                    api.vanish(f"{kind}/{each['metadata']['name']}")
    cluster.close()


@pytest.fixture
def quakes(api, operator):
    """The stream, which only a gateway would see as one that runs."""
    if api.find(streams(SPACE, "quakes")) is None:
        api.post(streams(SPACE), stream(SPACE, "quakes"))


@pytest.mark.gate
def test_an_area_waits_for_its_stream_is_loaded_is_shown_and_is_deleted(api, operator, known):
    wished = Wished(api, "early", NAMED)
    wished.says("False", "NoStream")
    api.post(streams(SPACE), stream(SPACE, "quakes"))
    wished.says("True", "Loaded")
    area = known.get(NAMED["name"])
    assert (area.by, area.polygon.to_geojson()) == (f"sa/{SPACE}/early", SQUARE)
    status = wished.status
    told = (status["stream"], status["area"], status["revision"], status["vertices"], status["digest"])
    assert told == (f"{SPACE}.quakes", NAMED["name"], area.revision, 4, area.polygon.digest)
    table = api.get(areas(), accept=TABLE)
    columns = [each["name"] for each in table["columnDefinitions"] if each["priority"] == 0]
    (row,) = [dict(zip(columns, each["cells"], strict=False)) for each in table["rows"] if each["cells"][0] == "early"]
    assert row.pop("Age")
    assert row == {
        "Name": "early",
        "Stream": "quakes",
        "Area": NAMED["name"],
        "Loaded": "True",
        "Reason": "Loaded",
        "Vertices": 4,
        "Revision": area.revision,
    }
    labels = {"namespace": SPACE, "area": "early"}
    assert operator.metric("spatialstream_operator_area_loaded", **labels) == 1.0
    events = [each["reason"] for each in api.list(f"/apis/events.k8s.io/v1/namespaces/{SPACE}/events")]
    assert {"NoStream", "Loaded"} <= set(events)
    wished.gone()
    assert NAMED["name"] not in known.table()


def test_a_changed_geometry_is_loaded_and_one_that_is_none_says_where(api, quakes, known):
    wished = Wished(api, "changing", AREA)
    wished.says("True", "Loaded")
    api.patch(wished.path, {"spec": {"geometry": ring(7)}})
    wished.says("True", "Loaded")
    assert (wished.status["vertices"], len(known.get("changing").polygon)) == (7, 7)
    crossed = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
    for geometry, told in (
        (crossed, "crosses or touches itself at [1, 1]"),
        ({"type": "Polygon", "coordinates": [7]}, "coordinates[0]"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [0, 0], [0, 0], [0, 0]]]}, "coordinates[0]"),
        ({"type": "MultiPolygon", "coordinates": [RING]}, "coordinates[0]"),
        ({"type": "Polygon", "coordinates": [[["a", 0], [8, 0], [8, 8], ["a", 0]]]}, "coordinates[0]"),
    ):
        api.patch(wished.path, {"spec": {"geometry": geometry}})
        message = wished.says("False", "Refused")["message"]
        assert told in message
        assert message.endswith(f"; revision {wished.status['revision']} is still loaded.")
    assert len(known.get("changing").polygon) == 7
    wished.gone()


def test_a_field_that_nobody_knows_is_refused_and_what_is_loaded_stays(api, quakes, known):
    wished = Wished(api, "unknown", AREA)
    wished.says("True", "Loaded")
    for change, told in (
        ({"geometry": {**ring(5), "crs": "EPSG:25833"}}, "spec.geometry.crs: is not a field of a SpatialArea; "),
        ({"nam": "mitte"}, "spec.nam: is not a field of a SpatialArea; did you mean spec.name?"),
    ):
        api.patch(wished.path, {"spec": change})
        message = wished.says("False", "Refused")["message"]
        assert message.startswith(told)
        assert message.endswith(f"; revision {wished.status['revision']} is still loaded.")
        api.patch(wished.path, {"spec": {"nam": None, "geometry": {"crs": None}}})
        wished.says("True", "Loaded")
    wished.gone()


@pytest.mark.gate
def test_an_area_of_as_many_vertices_as_a_stream_takes_has_room_in_no_annotation(api, quakes, known):
    """An annotation has 256 KiB, and the geometry more: Kopf keeps no copy of it."""
    geometry = ring(10_000)
    wished = Wished(api, "large", AREA | {"geometry": geometry})
    wished.says("True", "Loaded")
    assert wished.status["vertices"] == 10_000
    assert len(str(geometry)) > 256 * 1024
    body = api.get(wished.path)
    assert sum(map(len, (body["metadata"].get("annotations") or {}).values())) < 1_000
    assert body["metadata"]["finalizers"] == ["spatialstream.dev/cleanup"]
    wished.gone()
    assert "large" not in known.table()


def test_an_area_that_somebody_has_loaded_is_neither_taken_over_nor_deleted(api, quakes, known):
    known.load(SQUARE, name="taken")
    wished = Wished(api, "taken", AREA | {"geometry": ring(5)})
    assert "'taken' is an area that somebody has loaded" in wished.says("False", "NameInUse")["message"]
    wished.gone()
    assert len(known.get("taken").polygon) == 4
    known.delete("taken")


def test_an_operator_that_is_killed_loads_nothing_twice_and_forgets_nothing(api, operator, quakes, known):
    wished = Wished(api, "killed", AREA)
    wished.says("True", "Loaded")
    revision = known.get("killed").revision
    operator.kill()
    api.delete(wished.path)
    assert "killed" in known.table()
    operator.start()
    eventually(lambda: api.find(wished.path) is None, "it is gone")
    assert "killed" not in known.table()
    Wished(api, "killed", AREA).says("True", "Loaded")
    assert known.get("killed").revision == revision + 2


def test_nothing_of_it_was_a_mistake(operator):
    """Runs last of this module: all that the operator has said."""
    log = operator.log.read_text()
    assert "Traceback" not in log
    assert "annotations: Too long" not in log
    assert operator.ready
