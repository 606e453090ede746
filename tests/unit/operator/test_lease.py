import asyncio
import base64
import json
import logging
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.lease import Lease, account_of
from tests.unit.operator.simulated import SimulatedCluster, simulate

DURATION = 30.0


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Hundreds of simulated days would say much."""
    log = logging.getLogger("spatialstream_operator.lease")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def clock():
    return asyncio.get_running_loop().time()


def claim(cluster, holder, duration=DURATION):
    return Lease(cluster, "operator", "system", holder, duration, clock=clock)


def record(cluster):
    return cluster.objects["Lease", "system", "operator"]["spec"]


def test_the_first_gets_it_and_the_second_waits_until_it_is_given_back():
    cluster = SimulatedCluster()

    async def main():
        one, other = claim(cluster, "one"), claim(cluster, "other")
        await one.acquire()
        keeping, waiting = asyncio.create_task(one.keep()), asyncio.create_task(other.acquire())
        await asyncio.sleep(10 * DURATION)
        assert not waiting.done()
        assert not keeping.done()
        keeping.cancel()
        await one.release()
        released = clock()
        await waiting
        return clock() - released

    assert simulate(main) <= DURATION / 10
    assert record(cluster)["holderIdentity"] == "other"
    assert record(cluster)["leaseTransitions"] == 2
    assert record(cluster)["leaseDurationSeconds"] == 30


def test_what_is_not_renewed_is_free_after_its_duration():
    cluster = SimulatedCluster()

    async def main():
        await claim(cluster, "one").acquire()
        died = clock()
        await claim(cluster, "other").acquire()
        return clock() - died

    assert DURATION < simulate(main) < 1.2 * DURATION


def test_a_restarted_holder_of_the_same_name_goes_on_at_once():
    cluster = SimulatedCluster()

    async def main():
        await claim(cluster, "one").acquire()
        await asyncio.sleep(1.0)
        await claim(cluster, "one").acquire()
        return clock()

    assert simulate(main) == 1.0
    assert record(cluster)["leaseTransitions"] == 1


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_who_cannot_renew_it_knows_before_another_may_have_it(how):
    cluster = SimulatedCluster()

    async def fail(verb, kind):
        if how == "silent":
            await asyncio.sleep(1e6)
        raise ClusterError("no route to host")

    async def main():
        one = claim(cluster, "one")
        await one.acquire()
        cluster.before = fail
        await one.keep()
        return clock()

    assert DURATION / 2 < simulate(main) < DURATION


def test_who_finds_another_holder_stops_at_once():
    cluster = SimulatedCluster()

    async def main():
        one = claim(cluster, "one")
        await one.acquire()
        record(cluster)["holderIdentity"] = "other"
        await one.keep()
        await one.release()
        return clock()

    assert simulate(main) <= DURATION / 6
    assert record(cluster)["holderIdentity"] == "other", "what is another's is not given back"


def test_a_renewal_that_takes_effect_late_does_not_keep_it_from_being_given_back():
    cluster = SimulatedCluster()

    async def renew(verb, kind):
        if verb == "get":
            cluster.after = None
            cluster.put(cluster.objects["Lease", "system", "operator"])

    async def main():
        one = claim(cluster, "one")
        await one.acquire()
        cluster.after = renew
        await one.release()

    simulate(main)

    assert record(cluster)["holderIdentity"] == ""


def test_a_lease_without_a_holder_is_free():
    cluster = SimulatedCluster()
    cluster.put({"kind": "Lease", "metadata": {"name": "operator", "namespace": "system"}, "spec": {}})

    simulate(claim(cluster, "one").acquire)

    assert record(cluster)["holderIdentity"] == "one"


@dataclass
class Chaos:
    """Delays and failures around requests, as drawn."""

    plan: list
    used: int = 0

    def next(self):
        self.used += 1
        return self.plan[self.used % len(self.plan)]

    async def around(self, verb, kind):
        delay, fails = self.next()
        await asyncio.sleep(delay)
        if fails:
            raise ClusterError("no answer")


trouble = st.tuples(st.sampled_from([0.0, 0.0, 0.0, 0.5, 4.0, 9.0, 31.0]), st.integers(0, 5).map(lambda n: n == 0))


@given(
    st.lists(trouble, min_size=1, max_size=40),
    st.lists(trouble, min_size=1, max_size=40),
    st.floats(0.0, 20.0),
)
def test_there_are_never_two_holders(before, after, offset):
    """Whatever requests are late, or fail before or after they have taken effect."""
    cluster, first, second = SimulatedCluster(), Chaos(before), Chaos(after)
    cluster.before, cluster.after = first.around, second.around
    held = []

    async def work(name, pause):
        await asyncio.sleep(pause)
        while True:
            lease = claim(cluster, name)
            await lease.acquire()
            began = clock()
            await lease.keep()
            held.append((began, clock(), name))
            await asyncio.sleep(DURATION)

    async def main():
        workers = [asyncio.create_task(work("one", 0.0)), asyncio.create_task(work("other", offset))]
        await asyncio.sleep(2000.0)
        for each in workers:
            each.cancel()

    simulate(main)
    ordered = sorted(held)
    for (_, end, name), (begin, _, other) in pairwise(ordered):
        assert end <= begin or name == other


def token(claims):
    """As the API server writes one, but for its signature."""
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({}, claims))


def test_it_goes_with_the_account_of_the_installation():
    claims = {"kubernetes.io": {"namespace": "system", "serviceaccount": {"name": "operator", "uid": "a-1"}}}
    owner = account_of(f"{token(claims)}.signature")
    assert owner == {"apiVersion": "v1", "kind": "ServiceAccount", "name": "operator", "uid": "a-1"}
    cluster = SimulatedCluster()

    async def main():
        await Lease(cluster, "operator", "system", "one", DURATION, owner, clock).acquire()
        await claim(cluster, "other").acquire()

    simulate(main)
    assert cluster.objects["Lease", "system", "operator"]["metadata"]["ownerReferences"] == [owner]


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "a.%.c", token({}), token({"kubernetes.io": None}), token([])])
def test_a_token_of_something_else_names_no_account(text):
    assert account_of(text) is None
