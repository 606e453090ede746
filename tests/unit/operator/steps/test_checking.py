"""Pods that the API server is asked about before anything is made."""

import asyncio

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.restarts import Failure
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.checking import check_pods
from tests.unit.operator.simulated import World, refusal


@pytest.fixture
def world():
    return World()


def checked(world, memory, problem=None, **spec):
    body = world.stream(metadata={"uid": "u"}, spec=spec)
    parsed = StreamSpec.parse(body["spec"], world.environment.defaults)
    context = ReconcileContext(
        world.environment, StreamNames("geo", "quakes"), body, parsed, {}, memory, world.at, problem=problem
    )
    asyncio.run(check_pods(context))
    return [each for each in world.cluster.calls if each[0] == "check"]


def test_all_pods_of_a_spec_are_checked_once(world):
    memory = Memory()

    assert checked(world, memory) == [("check", "Pod", "quakes-check")] * 3
    assert len(checked(world, memory)) == 3
    assert len(checked(world, memory, router={"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}})) == 6


def test_nothing_is_checked_while_something_else_is_wrong(world):
    assert checked(world, Memory(), Failure("NameTaken", "no")) == []


@pytest.mark.parametrize("status", [400, 422])
def test_a_pod_that_is_wrong_is_a_wrong_spec_and_asked_about_once(world, status):
    async def fail(verb, kind):
        if verb == "check":
            raise refusal(status, 'unknown field "spec.nodeselector"')

    world.cluster.before = fail
    memory = Memory()
    for _ in range(3):
        with pytest.raises(SettingError, match=r'spec.router: makes a pod .* unknown field "spec.nodeselector"'):
            checked(world, memory)

    assert len([each for each in world.cluster.calls if each[0] == "check"]) == 1
    world.cluster.before = None
    checked(world, memory, image="other:1")


def test_a_quota_says_nothing_about_a_spec(world):
    async def fail(verb, kind):
        if verb == "check":
            raise refusal(403, "exceeded quota")

    world.cluster.before = fail

    assert len(checked(world, Memory())) == 3
