"""What the API server makes of SpatialStreams: it refuses wrong ones, completes right ones, scales and shows them."""

import pytest

from tests.api.client import GROUP, RefusalError
from tests.api.resources import UPDATES, WRONG, merged, stream, streams

pytestmark = pytest.mark.gate

STRICT = "?fieldValidation=Strict"
DRY = f"{STRICT}&dryRun=All"


def named(cases):
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.fixture(scope="module")
def space(namespace):
    return namespace("resource")


def case_body(space, case):
    return merged(
        WRONG["valid"],
        {"spec": case.get("spec", {}), "metadata": {"namespace": space, **case.get("metadata", {})}},
    )


def test_there_are_as_many_wrong_specs_as_promised():
    assert len(WRONG["refused"]) >= 25


@pytest.mark.parametrize("case", named(WRONG["refused"]))
def test_a_wrong_spec_is_refused_with_a_sentence(api, space, case):
    with pytest.raises(RefusalError) as refusal:
        api.post(f"{streams(space)}{DRY}", case_body(space, case))

    assert refusal.value.code in (400, 422)
    assert case["message"] in refusal.value.message


@pytest.mark.parametrize("case", named(WRONG["accepted"]))
def test_a_right_spec_is_accepted(api, space, case):
    made = api.post(f"{streams(space)}{DRY}", case_body(space, case))

    assert made["spec"]["workers"]["max"] >= 1


@pytest.mark.parametrize("case", named(UPDATES["refused"]))
def test_a_change_of_what_is_fixed_is_refused(api, space, case):
    with Made(api, stream(space, "changing", case["from"])) as path, pytest.raises(RefusalError) as refusal:
        api.patch(f"{path}{DRY}", {"spec": case["to"]})

    assert refusal.value.code == 422
    assert case["message"] in refusal.value.message


@pytest.mark.parametrize("case", named(UPDATES["accepted"]))
def test_a_change_of_the_rest_is_accepted(api, space, case):
    with Made(api, stream(space, "changing", case["from"])) as path:
        after = api.patch(f"{path}{DRY}", {"spec": case["to"]})

    assert merged(after["spec"], case["to"]) == after["spec"]


def test_what_a_spec_does_not_say_is_filled_in(api, space):
    made_spec = api.post(f"{streams(space)}{DRY}", stream(space, "defaults"))["spec"]

    expected = {
        "space": "wgs84",
        "interval": "5m",
        "suspend": False,
        "restartNonce": "",
        "maxRecordBytes": 1048576,
        "maxRowBytes": 67108864,
        "deletion": {"topics": "Keep", "state": "Delete"},
        "restart": {"backoff": "5s", "maxBackoff": "5m", "maxFailures": 10, "healthyAfter": "2m"},
        "index": {
            "kind": "qt-tree",
            "nearest": "settle",
            "leaves": 64,
            "imbalance": 6.0,
            "similarity": 0.5,
            "similarityForm": "weighted",
            "maxLeaves": 1024,
        },
        "time": {"idle": "500ms", "disorder": "0s", "ahead": "1h"},
        "autoscaling": {
            "enabled": False,
            "targetUtilisation": 60,
            "targetDelay": "5s",
            "scaleUpStabilisation": "30s",
            "scaleDownStabilisation": "10m",
        },
    }
    assert {name: made_spec[name] for name in expected} == expected
    rebalance = {"mode": "auto", "interval": "30s", "stabilisation": "2m", "cooldown": "10m", "timeout": "5m"}
    assert made_spec["rebalance"].items() >= rebalance.items()
    workers = made_spec["workers"]
    assert (workers["min"], workers["max"], workers["cores"], "replicas" in workers) == (1, 4, 1, False)
    assert "retention" not in made_spec
    assert "archive" not in made_spec


def test_it_is_scaled_by_its_scale_subresource(api, space):
    with Made(api, stream(space, "scaled")) as path:
        api.patch(f"{path}/status", {"status": {"workers": {"replicas": 1, "selector": "a=b,c=d"}}})
        api.patch(f"{path}/scale", {"spec": {"replicas": 3}})
        scale, after = api.get(f"{path}/scale"), api.get(path)

    assert after["spec"]["workers"]["replicas"] == 3
    assert after["metadata"]["generation"] == 2
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 1, "selector": "a=b,c=d"}


def test_status_and_spec_are_written_apart(api, space):
    with Made(api, stream(space, "apart")) as path:
        api.patch(path, {"status": {"phase": "Running"}})
        assert "status" not in api.get(path)
        api.patch(f"{path}/status", {"status": {"phase": "Running", "anything": 1}, "spec": {"suspend": True}})
        after = api.get(path)

    assert after["status"] == {"phase": "Running", "anything": 1}
    assert after["spec"]["suspend"] is False
    assert after["metadata"]["generation"] == 1


def test_a_phase_that_there_is_not_is_refused(api, space):
    with Made(api, stream(space, "phase")) as path, pytest.raises(RefusalError, match="Unsupported value"):
        api.patch(f"{path}/status", {"status": {"phase": "Perhaps"}})


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
STATUS = {
    "phase": "Running",
    "conditions": [
        {
            "type": name,
            "status": truth,
            "reason": "AsWanted",
            "message": f"{name} is {truth}.",
            "lastTransitionTime": "2026-11-21T12:00:00Z",
        }
        for name, truth in (("Ready", "True"), ("Balanced", "False"))
    ],
    "router": {"ready": "1/2"},
    "workers": {"ready": "2/3"},
    "routing": {"imbalance": "7.25", "version": 4, "leaves": 70},
    "lag": {"messages": 12, "delay": "0.8s"},
    "rebalance": {"phase": "Cooldown", "last": {"outcome": "balanced"}},
    "lastSeen": "2026-01-01T00:00:00Z",
    "console": "https://gateway.example/console/#stream=resource.glance",
}


def test_a_list_shows_at_a_glance_how_streams_are(api, space):
    with Made(api, stream(space, "glance")) as path:
        api.patch(f"{path}/status", {"status": STATUS})
        table = api.get(streams(space), accept=TABLE)

    columns = [(each["name"], each["priority"]) for each in table["columnDefinitions"]]
    assert [name for name, priority in columns if priority == 0] == [
        "Name", "Phase", "Ready", "Seen", "Workers", "Balanced", "Imbalance", "Version", "Lag", "Age",
    ]  # fmt: skip
    (row,) = (dict(zip([name for name, _ in columns], each["cells"], strict=True)) for each in table["rows"])
    del row["Age"]
    assert row.pop("Seen").endswith("d"), "it was seen long ago"
    assert row == {
        "Name": "glance",
        "Phase": "Running",
        "Ready": "True",
        "Workers": "2/3",
        "Balanced": "False",
        "Imbalance": "7.25",
        "Version": 4,
        "Lag": 12,
        "Leaves": 70,
        "Delay": "0.8s",
        "Router": "1/2",
        "Rebalance": "Cooldown",
        "Last": "balanced",
        "Message": "Ready is True.",
        "Console": "https://gateway.example/console/#stream=resource.glance",
    }


def test_it_is_found_by_its_short_name(api):
    resources = {each["name"]: each for each in api.get(GROUP)["resources"]}
    assert resources["spatialstreams"]["shortNames"] == ["sps"]
    assert resources["spatialstreams"]["singularName"] == "spatialstream"
    assert resources["spatialqueries"]["shortNames"] == ["sq"]
    assert resources["spatialareas"]["shortNames"] == ["sarea"]
    served = {
        "spatialstreams",
        "spatialstreams/status",
        "spatialstreams/scale",
        "spatialqueries",
        "spatialqueries/status",
        "spatialareas",
        "spatialareas/status",
    }
    assert set(resources) == served


class Made:
    """A stream that there is for a while."""

    def __init__(self, api, body):
        self._api = api
        self._body = body

    def __enter__(self):
        metadata = self._body["metadata"]
        self._path = streams(metadata["namespace"], metadata["name"])
        self._api.post(f"{streams(metadata['namespace'])}{STRICT}", self._body)
        return self._path

    def __exit__(self, *_):
        self._api.vanish(self._path)
