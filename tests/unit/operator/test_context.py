import asyncio
import copy

from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.context import ReconcileContext, emit
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from tests.unit.operator.simulated import World, merge, refusal

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
values = st.recursive(
    scalars,
    lambda below: st.dictionaries(st.sampled_from("xyz"), below, max_size=3) | st.lists(scalars, max_size=3),
    max_leaves=8,
)
parts = st.dictionaries(st.sampled_from(["router", "workers", "lag"]), values, max_size=3)


def context_of(world):
    body = world.body()
    environment = world.environment
    status = copy.deepcopy(body.get("status") or {})
    spec = StreamSpec.parse(body["spec"], environment.defaults)
    return ReconcileContext(environment, StreamNames("geo", "quakes"), body, spec, status, Memory(), world.at)


def remember(world, said):
    context = context_of(world)
    asyncio.run(context.remember(**said))
    return context


@given(st.lists(parts, max_size=4))
def test_what_is_remembered_is_what_the_server_has(steps):
    world = World()
    world.stream()
    expected = {}
    for said in steps:
        context = remember(world, said)
        expected = merge(expected, said)
        assert world.body().get("status", {}) == expected
        assert context.status == expected


@given(parts, parts)
def test_only_changes_are_written(before, after):
    world = World()
    world.stream()
    remember(world, before)
    remember(world, after)
    written = len(world.cluster.calls)

    context = remember(world, after)
    asyncio.run(context.remember(**after))

    assert len(world.cluster.calls) == written


def test_a_part_is_written_with_what_is_new_in_it_alone():
    world = World()
    world.stream(status={"router": {"pod": "a", "last": {"reason": "x", "time": "y"}}, "phase": "Running"})
    asked = []

    async def patch(kind, name, namespace, change):
        asked.append(change)

    world.cluster.patch_status = patch
    remember(world, {"router": {"pod": "a", "last": {"reason": "z", "time": None}, "none": None}, "phase": "Running"})

    assert asked == [{"router": {"last": {"reason": "z", "time": None}}}]


def test_what_is_remembered_does_not_change_with_what_it_was_made_from():
    world = World()
    world.stream()
    tried = ["PM"]
    context = remember(world, {"rebalance": {"tried": tried}})
    tried.append("FM")

    assert context.part("rebalance") == {"tried": ["PM"]}
    assert context.part("nothing") == {}


def test_an_event_says_what_about_what():
    world = World()
    body = world.stream()

    asyncio.run(emit(world.environment, body, Note("Reason", "A sentence.", warning=True)))

    (event,) = world.cluster.events()
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Reason", "A sentence.")
    assert event["regarding"]["uid"] == body["metadata"]["uid"]
    assert event["metadata"]["namespace"] == "geo"


@given(st.text(min_size=200, max_size=1500))
def test_a_note_is_never_longer_than_the_server_takes(text):
    world = World()
    asyncio.run(emit(world.environment, world.stream(), Note("Reason", text.encode(errors="ignore").decode())))

    (event,) = world.cluster.events()
    assert len(event["note"].encode()) <= 1024
    assert text.encode(errors="ignore").decode().startswith(event["note"])


def test_an_event_that_cannot_be_made_is_no_reason_to_stop(caplog):
    for error in (refusal(403), ClusterError("no route")):
        world = World()
        body = world.stream()

        async def fail(verb, kind, error=error):
            raise error

        world.cluster.before = fail
        asyncio.run(emit(world.environment, body, Note("Reason", "A sentence.")))

    assert caplog.text.count("cannot create the event") == 2
