"""SpatialQueries with a real API server, a real gateway, and the operator under its own account between them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.reviews import Reviews
from tests.api.client import GROUP, RefusalError, eventually
from tests.api.installation import install, token_of
from tests.api.operators import OperatorProcess
from tests.api.resources import merged, stream, streams
from tests.api.test_gateway import account, cluster_of
from tests.unit.gateway.http import served, serving
from tests.unit.gateway.results import opener
from tests.unit.gateway.test_writing import Stream
from tests.unit.operator.test_gateway import Registering

ROOT = Path(__file__).parents[2]
SPACE = "sq-geo"
AUDIENCE = "spatialstream-gateway"
BOX = {"box": [0, 0, 1, 1]}
TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [1.5, 0], [0, 1], [0, 0]]]}
ROAD = {"type": "LineString", "coordinates": [[0, 0], [1.5, 0]]}
CRQ = {"stream": "quakes", "type": "CRQ", "region": BOX}
CKQ = {"stream": "quakes", "type": "CKQ", "at": [0, 0], "k": 3}
CTQ = {"stream": "quakes", "type": "CTQ", "region": BOX, "k": 3, "window": "1h", "step": 60_000}
CBQ = {"stream": "quakes", "type": "CBQ", "at": [0, 0], "k": 3, "words": ["a"], "radius": 1000, "halfLife": "6h"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def queries(name="", space=SPACE):
    return f"{GROUP}/namespaces/{space}/spatialqueries" + (f"/{name}" if name else "")


def wanted(name, spec, space=SPACE):
    about = {"name": name, "namespace": space}
    return {"apiVersion": "spatialstream.dev/v1alpha1", "kind": "SpatialQuery", "metadata": about, "spec": spec}


@pytest.fixture(scope="module")
def space(namespace):
    return namespace(SPACE)


@pytest.mark.parametrize(
    "spec",
    [
        CRQ,
        CKQ,
        CTQ,
        CBQ,
        {**CBQ, "weights": {"space": 0.5}, "window": "1d", "halfLife": 60_000, "duration": "1h", "where": "a = 1"},
        {**CRQ, "region": {"circle": [13.4, 52.5, 1000]}, "duration": "7d", "keywords": [], "any": [["a", "b"], ["c"]]},
        {**CKQ, "window": 1000, "none": ["a"], "duration": 0},
        {**CRQ, "region": {"polygon": TRIANGLE}},
        {**CTQ, "region": {"polygon": {"type": "MultiPolygon", "coordinates": [TRIANGLE["coordinates"]]}}},
        {**CRQ, "region": {"polygon": {"type": "Feature", "properties": {"name": "a"}, "geometry": TRIANGLE}}},
        {**CRQ, "region": {"polygon": TRIANGLE, "within": 500}},
        {**CTQ, "region": {"area": "mitte", "within": 0.5}},
        {**CRQ, "region": {"polygon": ROAD, "within": 200}},
    ],
)
def test_a_right_spec_is_accepted_as_it_is(api, space, spec):
    made = api.post(f"{queries()}?fieldValidation=Strict&dryRun=All", wanted("right", spec))
    assert made["spec"] == spec


@pytest.mark.gate
def test_the_examples_are_accepted(api, namespace):
    namespace("geo")
    page = (ROOT / "docs/queries.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    for each in (*yaml.safe_load_all((ROOT / "examples/queries.yaml").read_text()), yaml.safe_load(shown)):
        each["metadata"]["namespace"] = "geo"
        api.post(f"{queries(space='geo')}?fieldValidation=Strict&dryRun=All", each)


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (CRQ, {"stream": None}, "spec.stream: Required value"),
        (CRQ, {"type": "SRQ"}, "supported values"),
        (CRQ, {"region": None}, "a CRQ and a CTQ require region"),
        (CRQ, {"region": {"circle": [0, 0, 1]}}, "give box, circle, polygon or area"),
        (CRQ, {"region": {"polygon": TRIANGLE}}, "give box, circle, polygon or area"),
        (
            CRQ,
            {"region": {"box": None, "polygon": {"type": "Polygon"}}},
            "spec.region.polygon.coordinates: Required value",
        ),
        (CRQ, {"region": {"box": None, "polygon": {"type": "Feature", "coordinates": [[]]}}}, "requires geometry"),
        (CRQ, {"region": {"box": None, "polygon": {"type": "Curve", "coordinates": [0, 0]}}}, "Unsupported value"),
        (CRQ, {"region": {"box": None, "polygon": ROAD}}, "a polygon of lines or points requires within"),
        (CRQ, {"region": {"within": 5}}, "within is a margin around a polygon or an area"),
        (CRQ, {"region": {"box": None, "polygon": ROAD, "within": -1}}, "spec.region.within"),
        (CRQ, {"region": {"box": [0, 0, 1]}}, "spec.region.box"),
        (CRQ, {"at": [0, 0]}, "a CKQ and a CBQ require at"),
        (CRQ, {"k": 3}, "a CRQ takes none"),
        (CRQ, {"window": "1h"}, "a CRQ takes none"),
        (CRQ, {"duration": "soon"}, "spec.duration"),
        (CRQ, {"duration": -1}, "spec.duration"),
        (CRQ, {"keywords": ["a"], "any": [["b"]]}, "any cannot be combined with keywords"),
        (CRQ, {"any": [[]]}, "spec.any"),
        (CKQ, {"k": 0}, "spec.k"),
        (CKQ, {"at": [0]}, "spec.at"),
        (CKQ, {"step": "1s"}, "a CTQ requires step"),
        (CTQ, {"step": None}, "a CTQ requires step"),
        (CTQ, {"step": 0}, "spec.step"),
        (CTQ, {"window": None}, "a CTQ requires window"),
        (CTQ, {"k": None}, "the others require k"),
        (CBQ, {"at": None}, "a CKQ and a CBQ require at"),
        (CBQ, {"region": BOX}, "a CRQ and a CTQ require region"),
        (CBQ, {"words": None}, "a CBQ requires words"),
        (CBQ, {"radius": None}, "a CBQ requires radius"),
        (CBQ, {"radius": 0}, "spec.radius"),
        (CBQ, {"halfLife": None}, "a CBQ requires halfLife"),
        (CBQ, {"halfLife": 0}, "spec.halfLife"),
        (CBQ, {"weights": {"space": 2}}, "spec.weights.space"),
        (CKQ, {"weights": {"space": 0.5}}, "a CBQ may have weights"),
        (CKQ, {"words": ["a"]}, "a CBQ requires words"),
    ],
)
def test_a_wrong_spec_is_refused_with_a_sentence(api, space, base, change, message):
    with pytest.raises(RefusalError) as refusal:
        api.post(f"{queries()}?fieldValidation=Strict&dryRun=All", wanted("wrong", merged(base, change)))
    assert refusal.value.code in (400, 422)
    assert message in refusal.value.message


def test_the_stream_cannot_be_changed(api, space):
    api.post(queries(space="default"), wanted("fixed", CRQ, "default"))
    with pytest.raises(RefusalError, match="delete this SpatialQuery and create another one"):
        api.patch(f"{queries('fixed', 'default')}?dryRun=All", {"spec": {"stream": "ships"}})
    api.vanish(queries("fixed", "default"))


class Asked:
    """A SpatialQuery of a test's own."""

    def __init__(self, api, name, spec, validation="Strict", **more):
        self.api, self.name, self.path = api, name, queries(name)
        api.post(f"{queries()}?fieldValidation={validation}", wanted(name, spec) | more)

    @property
    def status(self):
        return self.api.get(self.path).get("status") or {}

    def says(self, status, reason):
        def found():
            told = self.status.get("conditions") or [{}]
            generation = self.api.get(self.path)["metadata"]["generation"]
            current = told[0].get("observedGeneration") == generation
            return current and (told[0].get("status"), told[0].get("reason")) == (status, reason) and told[0]

        return eventually(found, f"it is {status} {reason}", now=lambda: self.status)

    def told(self, reason):
        """There is an event of it with the reason."""

        def found():
            events = self.api.list(f"/apis/events.k8s.io/v1/namespaces/{SPACE}/events")
            return (self.name, reason) in {(each["regarding"]["name"], each["reason"]) for each in events}

        eventually(found, f"its event {reason}", now=lambda: self.status)

    def gone(self):
        eventually(lambda: self.api.find(self.path) is None, "it is gone", now=lambda: self.status)


@pytest.fixture(scope="module")
def behind():
    """What takes in the queries of the stream ``quakes``."""
    made = Stream()
    made.room.set()
    return made


@pytest.fixture(scope="module")
def operator(tmp_path_factory, server, api, namespace, process, behind, space):
    """An operator with a gateway, as the chart installs them; the one of all namespaces does not run meanwhile."""
    process.kill()
    values = {"watch": {"namespaces": [SPACE]}, "crds": {"install": False}, "rbac": {"aggregate": False}}
    installed = install(api, namespace, "sq", "sq-system", values)
    folder = tmp_path_factory.mktemp("sq")
    (folder / "token").write_text(token_of(api, installed.namespace, installed.account, AUDIENCE))
    cluster = cluster_of(server, token_of(api, installed.namespace, installed.gateway))
    served_here = served(f"{SPACE}.quakes", lambda: Registering(behind), opener(behind.results), behind)
    access = Access(reviews=Reviews(cluster, [AUDIENCE], api_server=True))
    with serving(Gateway([served_here], access, registrars=[installed.user])) as gateway:
        settings = {"NAMESPACES": SPACE, "GATEWAY_SERVICE": f"http://127.0.0.1:{gateway.port}"}
        settings["GATEWAY_TOKEN"] = str(folder / "token")
        with OperatorProcess(folder, server, installed.token(api), installed.namespace, **settings) as started:
            eventually(lambda: started.ready, "the operator is at work")
            yield started
            for kind in (queries(), streams(SPACE)):
                for each in api.list(kind):
                    api.vanish(f"{kind}/{each['metadata']['name']}")
    cluster.close()


@pytest.fixture
def quakes(api, operator):
    """The stream, which only a gateway would see as one that runs."""
    if api.find(streams(SPACE, "quakes")) is None:
        api.post(streams(SPACE), stream(SPACE, "quakes"))


@pytest.mark.gate
def test_a_query_waits_for_its_stream_is_registered_is_shown_and_is_cancelled(api, operator, behind):
    asked = Asked(api, "early", CRQ)
    asked.says("False", "NoStream")
    api.post(streams(SPACE), stream(SPACE, "quakes"))
    asked.says("True", "Registered")
    name = asked.status["query"]
    assert name.startswith(f"{SPACE}.early.")
    assert name in behind.registered
    assert {record.get("by") for record, _ in behind.sent if record["id"] == name} == {f"sq/{SPACE}/early"}
    eventually(lambda: asked.status.get("rows") == 3, "its rows are told", now=lambda: asked.status)
    assert asked.status["lastRow"] == "1970-01-01T00:00:00.900Z"
    table = api.get(queries(), accept=TABLE)
    columns = [each["name"] for each in table["columnDefinitions"] if each["priority"] == 0]
    (row,) = [dict(zip(columns, each["cells"], strict=False)) for each in table["rows"] if each["cells"][0] == "early"]
    shown = {name: row[name] for name in ("Name", "Stream", "Type", "Registered", "Reason", "Rows")}
    told = {"Name": "early", "Stream": "quakes", "Type": "CRQ", "Registered": "True", "Reason": "Registered", "Rows": 3}
    assert shown == told
    labels = {"namespace": SPACE, "query": "early"}
    assert operator.metric("spatialstream_operator_query_registered", **labels) == 1.0
    events = [each["reason"] for each in api.list(f"/apis/events.k8s.io/v1/namespaces/{SPACE}/events")]
    assert {"NoStream", "Registered"} <= set(events)
    api.delete(asked.path)
    asked.gone()
    assert name not in behind.registered


def test_a_changed_query_replaces_the_earlier_one_and_a_refused_one_says_why(api, quakes, behind):
    asked = Asked(api, "changing", CRQ)
    asked.says("True", "Registered")
    old = asked.status["query"]
    api.patch(asked.path, {"spec": {"region": {"box": [0, 0, 600, 1]}}})
    told = asked.says("False", "Refused")
    assert "longitude" in told["message"] or "600" in told["message"]
    assert told["message"].endswith(f"the previous query {old} is still registered.")
    assert old in behind.registered
    api.patch(asked.path, {"spec": {"region": {"box": [0, 0, 2, 2]}}})
    asked.says("True", "Registered")
    assert old not in behind.registered
    assert asked.status["query"] in behind.registered
    api.delete(asked.path)
    asked.gone()


UNKNOWN = [
    ({"spec": {**CRQ, "keyword": ["fire"]}}, "spec.keyword", "spec.keywords"),
    ({"spec": {**CRQ, "wehre": "a = 1"}}, "spec.wehre", "spec.where"),
    ({"spec": {**CRQ, "id": "mine"}}, "spec.id", "the operator sets it"),
    ({"spec": {**CRQ, "region": {**BOX, "keywords": ["fire"]}}}, "spec.region.keywords", "spec.keywords"),
    ({"spec": {**CKQ, "windows": "1h"}}, "spec.windows", "spec.window"),
    ({"spec": {**CBQ, "weights": {"space": 0.5, "spcae": 1}}}, "spec.weights.spcae", "spec.weights.space"),
    ({"spec": CRQ, "where": "a = 1"}, "where", "spec.where"),
]


@pytest.mark.gate
@pytest.mark.parametrize("validation", ["Ignore", "Warn"])
def test_a_field_that_nobody_knows_is_seen_by_the_operator_and_nothing_is_registered(api, quakes, behind, validation):
    """A client need not ask for strict validation, and a query without its condition would select everything."""
    sent = len(behind.sent)
    for number, (body, field, meant) in enumerate(UNKNOWN):
        asked = Asked(api, f"unknown-{number}", **body, validation=validation)
        message = asked.says("False", "Refused")["message"]
        assert message.startswith(f"{field}: is not a field of a SpatialQuery; ")
        assert meant in message
        asked.told("Refused")
    assert len(behind.sent) == sent
    for number in range(len(UNKNOWN)):
        api.vanish(queries(f"unknown-{number}"))


def test_a_misspelt_change_leaves_the_query_that_is_registered(api, quakes, behind):
    asked = Asked(api, "misspelt", CRQ)
    asked.says("True", "Registered")
    old = asked.status["query"]
    api.patch(asked.path, {"spec": {"keyword": ["fire"]}})
    message = asked.says("False", "Refused")["message"]
    assert message.endswith(f"did you mean spec.keywords?; the previous query {old} is still registered.")
    assert old in behind.registered
    api.patch(asked.path, {"spec": {"keyword": None, "keywords": ["fire"]}})
    asked.says("True", "Registered")
    assert old not in behind.registered
    api.delete(asked.path)
    asked.gone()


def test_an_operator_that_is_killed_registers_nothing_twice_and_forgets_nothing(api, operator, quakes, behind):
    sent = len(behind.sent)
    asked = Asked(api, "killed", CRQ)
    asked.says("True", "Registered")
    operator.kill()
    name = asked.status["query"]
    api.delete(asked.path)
    assert name in behind.registered
    operator.start()
    asked.gone()
    records = [record for (record, _) in behind.sent[sent:] if record["id"] == name]
    assert [record["type"] for record in records] == ["CRQ", "CANCEL"]


def test_who_may_edit_queries_needs_no_right_on_streams(api, server, quakes):
    account(api, SPACE, "editor", ["get"])
    rule = {"apiGroups": ["spatialstream.dev"], "resources": ["spatialqueries"], "verbs": ["create", "delete"]}
    api.patch(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}/roles/editor", {"rules": [rule]})
    editor = server.with_token(token_of(api, SPACE, "editor"))
    eventually(lambda: _posts(editor, wanted("theirs", CRQ)), "the right has come")
    editor.delete(queries("theirs"))


def _posts(client, body):
    try:
        return client.post(queries(), body)
    except RefusalError:
        return None


def test_nothing_of_it_was_a_mistake(operator):
    """Runs last of this module: all that the operator has said."""
    log = operator.log.read_text()
    assert "Traceback" not in log
    assert operator.ready
