import asyncio
from types import SimpleNamespace

import pytest

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.decisions import records
from spatialstream_operator.steps.removing import remove
from spatialstream_operator.stores import Stores
from tests.unit.operator.simulated import World, refusal

MINUTE = 60_000


@pytest.fixture
def world():
    made = World()
    made.stream(status={"router": {"templateHash": "a"}})
    return made


def removed(world):
    return asyncio.run(remove(world.environment, world.body()))


def pod(world, name="quakes-remover", phase="Pending", owner=None, **metadata):
    """A pod of the stream, or of another owner."""
    own = {"kind": "SpatialStream", "name": "quakes", "uid": world.body()["metadata"]["uid"]}
    world.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "geo",
                "creationTimestamp": records.moment_text(world.at),
                "ownerReferences": [own if owner is None else owner],
                **metadata,
            },
            "status": {"phase": phase},
        }
    )


def reasons(world):
    return [each["reason"] for each in world.cluster.events()]


def made(world):
    return ("create", "Pod", "quakes-remover") in world.cluster.calls


def test_it_waits_for_the_drivers_and_then_makes_the_pod(world):
    pod(world, "quakes-worker", "Running")
    assert not removed(world)
    assert ("delete", "Pod", "quakes-worker") in world.cluster.calls
    assert not made(world)
    assert not removed(world)
    assert made(world)
    assert world.body()["status"]["phase"] == "Deleting"


def test_the_pod_is_told_what_others_use_and_which_incarnation_it_is(world):
    world.stream("new", spec={"kafka": {"topics": {"objects": "geo.quakes.objects"}}})
    world.stream(
        spec={"deletion": {"topics": "Delete"}},
        status={"router": {"templateHash": "a"}, "routing": {"incarnation": "l1"}},
    )
    assert not removed(world)

    (container,) = world.cluster.objects["Pod", "geo", "quakes-remover"]["spec"]["containers"]
    said = ["--incarnation", "l1", "--spare", "geo.quakes.objects", "--topics", "all"]
    assert container["args"][-len(said) :] == said


def test_a_driver_that_is_ending_is_not_told_again(world):
    pod(world, "quakes-worker", "Running", deletionTimestamp=records.moment_text(world.at))

    assert not removed(world)

    assert not [call for call in world.cluster.calls if call[0] == "delete"]


def test_pods_of_others_are_left_alone(world):
    for owner in ({"kind": "Deployment", "name": "web", "uid": "theirs"}, {}):
        pod(world, "quakes-router", "Running", owner=owner or None, **({} if owner else {"ownerReferences": []}))
        world.cluster.calls.clear()
        assert not removed(world)
        assert ("delete", "Pod", "quakes-router") not in world.cluster.calls


def test_it_is_done_when_the_pod_has_succeeded(world):
    pod(world, phase="Succeeded")

    assert removed(world)


def test_what_an_earlier_stream_of_this_name_has_done_does_not_count(world):
    pod(world, phase="Succeeded", owner={"kind": "SpatialStream", "name": "quakes", "uid": "an earlier one"})

    assert not removed(world)
    assert ("delete", "Pod", "quakes-remover") in world.cluster.calls
    assert not removed(world)
    assert made(world)


def test_a_pod_that_does_not_end_in_time_counts_as_a_failure_once(world):
    world.stream(status={"router": {"templateHash": "a"}, "removal": {"failures": 1}})
    pod(world, phase="Running")
    world.at += 4 * MINUTE
    leaving = records.moment_text(world.at)

    async def linger(kind, name, namespace):
        world.cluster.objects[kind, namespace, name]["metadata"]["deletionTimestamp"] = leaving
        return True

    world.cluster.delete = linger
    for _ in range(5):
        assert not removed(world)

    assert world.body()["status"]["removal"]["failures"] == 2
    assert reasons(world) == ["CleanupFailed"]


def test_the_third_failure_is_the_last(world):
    for failures in (1, 2, 3):
        pod(world, phase="Failed")
        assert removed(world) == (failures == 3)
        assert world.body()["status"]["removal"]["failures"] == failures

    assert reasons(world) == ["CleanupFailed"] * 3
    assert "is given up" in world.cluster.events()[-1]["note"]


def test_a_pod_that_never_goes_away_holds_nothing_up(world):
    pod(world, phase="Running", deletionTimestamp=records.moment_text(world.at))
    assert not removed(world)
    world.at += 4 * MINUTE

    assert removed(world)
    assert reasons(world) == ["CleanupSkipped"]


def test_a_stranger_in_the_pods_place_holds_nothing_up(world):
    pod(world, phase="Running", ownerReferences=[])

    assert removed(world)
    assert reasons(world) == ["CleanupSkipped"]
    assert not [call for call in world.cluster.calls if call[0] == "delete"]


@pytest.mark.parametrize("code", [403, 422])
def test_a_pod_that_may_not_be_made_holds_nothing_up(world, code):
    async def fail(verb, kind):
        if (verb, kind) == ("create", "Pod"):
            raise refusal(code, "the namespace is being terminated")

    world.cluster.before = fail

    assert removed(world)
    assert "the namespace is being terminated" in world.cluster.events()[0]["note"]


@pytest.mark.parametrize("error", [refusal(500), refusal(429), ClusterError("no route")])
def test_an_api_server_in_trouble_is_asked_again(world, error):
    async def fail(verb, kind):
        if (verb, kind) == ("create", "Pod"):
            raise error

    world.cluster.before = fail

    with pytest.raises(ClusterError):
        removed(world)
    assert reasons(world) == []


def test_nothing_is_waited_for_if_a_person_says_so(world):
    world.body()["metadata"]["annotations"] = {"spatialstream.dev/skip-cleanup": "true"}
    pod(world, "quakes-router", "Running", deletionTimestamp=records.moment_text(world.at))

    assert removed(world)
    assert not made(world)


@pytest.mark.parametrize(
    "changes",
    [{"spec": {"deletion": {"state": "Keep"}}}, {"status": {"router": None}}, {"spec": {"kafka": None}}],
    ids=["kept", "never begun", "not readable"],
)
def test_where_there_is_nothing_to_remove_it_is_done_at_once(world, changes):
    world.stream(**{"status": {"router": {"templateHash": "a"}}, **changes})

    assert removed(world)
    assert not made(world)


# ------------------------------------------------------------------------------------ a namespace that is being deleted


class Erased:
    """What there is to be known of the routing store here."""

    def __init__(self, error=None):
        self.error, self.count, self.incarnation = error, 0, "l1"

    def versions(self):
        return (0,)

    def state(self):
        return SimpleNamespace(incarnation=self.incarnation)

    def erase(self):
        if self.error is not None:
            raise self.error
        self.count += 1

    def close(self):
        pass


@pytest.fixture
def going(world, monkeypatch):
    """The world's namespace is being deleted; the routing store is there."""
    world.cluster.terminating = True
    world.body()["metadata"]["deletionTimestamp"] = records.moment_text(world.at)
    store = Erased()
    monkeypatch.setattr(Stores, "known", lambda self, stream: store)
    return store


@pytest.mark.parametrize("url", [None, "s3://streams/quakes"])
def test_with_its_namespace_goes_what_the_operator_reaches_and_the_rest_is_told(world, going, caplog, url):
    if url is not None:
        world.body()["spec"]["checkpoint"] = {"url": url}

    assert removed(world)

    assert going.count == 1
    assert not made(world)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(
        "geo/quakes: no pod can remove the stream's external state, because its namespace is being deleted."
    )
    assert "The routing state in ZooKeeper is removed" in line
    assert "These topics remain in Kafka: geo.quakes.blocks, geo.quakes.epochs." in line
    assert line.endswith(
        "The content of s3://streams/quakes remains." if url else "remains if the claim's volume does."
    )


def test_a_namespace_goes_with_a_store_that_cannot_be_reached(world, going, caplog):
    going.error = Unavailable("nobody answers")

    assert removed(world)
    assert "The routing state remains in ZooKeeper (nobody answers)" in caplog.text


def test_the_routing_state_of_another_incarnation_stays_with_a_namespace_that_goes(world, going, caplog):
    world.body()["status"]["routing"] = {"incarnation": "l2"}

    assert removed(world)
    assert going.count == 0
    assert (
        "The routing state remains in ZooKeeper (it belongs to another incarnation of geo.quakes: l1, not l2)"
        in caplog.text
    )


def test_drivers_of_a_namespace_that_goes_are_waited_for(world, going):
    pod(world, "quakes-router", "Running")

    assert not removed(world)
    assert going.count == 0
    assert removed(world)


@pytest.mark.parametrize("right", [True, False])
def test_drivers_that_cannot_be_seen_any_more_get_time_to_end(world, going, right):
    async def fail(verb, kind):
        if kind == "Pod":
            raise refusal(403 if right else 500)

    world.cluster.before = fail
    if not right:
        with pytest.raises(ClusterError):
            removed(world)
        return
    assert not removed(world)
    assert going.count == 0
    world.at += 20_000
    assert removed(world)
    assert going.count == 1


@pytest.mark.parametrize("changes", [{"spec": {"deletion": {"state": "Keep"}}}, {"status": {"router": None}}])
def test_nothing_is_removed_or_told_with_a_namespace_where_nothing_is_to_be(world, going, caplog, changes):
    world.stream(**{"status": {"router": {"templateHash": "a"}}, **changes})

    assert removed(world)
    assert going.count == 0
    assert caplog.records == []


def test_rights_that_are_missing_hold_nothing_up_if_a_person_says_so(world):
    async def fail(verb, kind):
        if kind == "Pod":
            raise refusal(403)

    world.cluster.before = fail
    with pytest.raises(ClusterError):
        removed(world)
    world.body()["metadata"]["annotations"] = {"spatialstream.dev/skip-cleanup": "true"}

    assert removed(world)


# ----------------------------------------------------------------------------------------- a router that has never run


class Kept:
    """A routing store that holds some versions, or cannot be asked."""

    def __init__(self, found):
        self.found = found

    def versions(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def close(self):
        pass


@pytest.fixture
def waiting(world, monkeypatch):
    """The router's pod waits for something that is missing; what the store holds and what is remembered is given."""

    def wait(found=(), **router):
        async def of(self, stream, servers, namespace, secret, tls):
            assert secret is None, "the secret may be what is missing"
            return Kept(found)

        monkeypatch.setattr(Stores, "of", of)
        remembered = {"templateHash": "a", "ran": "no", "podUid": "u", **router}
        world.stream(status={"phase": "Deleting", "router": remembered})
        pod(world, "quakes-router", "Pending")

    return wait


@pytest.mark.parametrize("found", [(), Unavailable("no answer")])
def test_where_the_router_never_ran_nothing_is_removed(world, waiting, found):
    waiting(found)

    assert not removed(world), "its pod goes first"
    assert removed(world)
    assert not made(world)
    assert reasons(world) == ["NothingToRemove"]


def test_where_certificates_were_missing_from_the_beginning_nothing_is_removed(world):
    remembered = {"templateHash": "a", "ran": "no", "podUid": "u"}
    spec = {"zookeeper": {"tlsSecret": {"name": "nowhere"}}}
    world.stream(spec=spec, status={"phase": "Deleting", "router": remembered})
    pod(world, "quakes-router", "Pending")

    assert not removed(world), "its pod goes first"
    assert removed(world)
    assert not made(world)


@pytest.mark.parametrize("found", [(0,), SettingError("zookeeper", "not for you")])
def test_what_an_earlier_stream_may_have_kept_is_removed(world, waiting, found):
    waiting(found)

    assert not removed(world)
    assert not removed(world)
    assert made(world)


@pytest.mark.parametrize("router", [{"ran": "yes"}, {"ran": "unknown"}, {"ran": None}])
def test_where_it_is_not_known_everything_is_removed(world, waiting, router):
    waiting(**router)
    del world.cluster.objects["Pod", "geo", "quakes-router"]

    assert not removed(world)
    assert made(world)


def test_a_router_that_is_gone_before_anyone_looked_may_have_run(world, waiting):
    waiting()
    del world.cluster.objects["Pod", "geo", "quakes-router"]

    assert not removed(world)
    assert made(world)


def test_a_router_that_is_started_at_the_last_moment_has_run(world, waiting):
    waiting()
    leaving = records.moment_text(world.at)
    state = {"name": "driver", "state": {"running": {"startedAt": leaving}}}
    pod(world, "quakes-router", "Running", deletionTimestamp=leaving)
    world.cluster.objects["Pod", "geo", "quakes-router"]["status"]["containerStatuses"] = [state]

    assert not removed(world)
    assert world.body()["status"]["router"]["ran"] == "yes"
    del world.cluster.objects["Pod", "geo", "quakes-router"]
    assert not removed(world)
    assert made(world)
