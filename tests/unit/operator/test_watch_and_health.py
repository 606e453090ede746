import asyncio
import socket

import aiohttp
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.health import Health
from spatialstream_operator.watch import Watch


def body(uid, version):
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_what_has_been_shown_is_not_missing():
    watch = Watch()
    watch.show(body("a", 1))
    watch.list([body("a", 1)], 10.0)

    assert watch.lag(1000.0) == 0.0


def test_what_is_listed_and_not_shown_is_missing_since_it_was_first_listed():
    watch = Watch()
    watch.show(body("a", 1))
    for now in (10.0, 30.0, 50.0):
        watch.list([body("a", 2)], now)

    assert watch.lag(60.0) == 50.0
    watch.show(body("a", 2))
    watch.list([body("a", 2)], 70.0)
    assert watch.lag(70.0) == 0.0


def test_a_stream_that_changes_all_the_time_is_no_dead_watch():
    watch = Watch()
    for now in range(0, 1000, 20):
        watch.list([body("a", now + 1)], float(now))
        assert watch.lag(now + 20.0) <= 20.0
        watch.show(body("a", now))


def test_a_stream_that_nobody_has_ever_shown_is_missing_too():
    watch = Watch()
    watch.list([body("a", 1)], 0.0)
    watch.list([body("a", 5)], 100.0)

    assert watch.lag(150.0) == 150.0


def test_what_is_missing_at_a_place_is_not_missing_at_another():
    watch = Watch()
    watch.list([body("a", 1)], 10.0, "geo")
    watch.list([body("b", 1)], 30.0, "weather")

    assert [watch.lag(60.0, *places) for places in ((), ("geo",), ("weather",), ("elsewhere",))] == [50, 50, 30, 0]


def test_what_is_gone_is_not_missed():
    watch = Watch()
    watch.list([body("a", 1), body("b", 1)], 0.0)
    watch.show(body("a", 1), deleted=True)
    watch.list([], 20.0)

    assert watch.lag(1000.0) == 0.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_a_watch_that_shows_everything_never_lags_longer_than_a_list(steps):
    """Each object changes; the watch shows it at once, or just after the next list."""
    watch, versions, late, now = Watch(), {}, [], 0.0
    for name, quick in steps:
        now += 20.0
        versions[name] = versions.get(name, 0) + 1
        if quick:
            watch.show(body(name, versions[name]))
        else:
            late.append(body(name, versions[name]))
        watch.list([body(each, version) for each, version in versions.items()], now)
        assert watch.lag(now) <= 20.0
        while late:
            watch.show(late.pop(0))


class Time:
    now = 0.0

    def __call__(self):
        return self.now


def test_health_fails_when_the_watch_is_dead():
    now, watch = Time(), Watch()
    health = Health(watch, now)
    health.checked()
    watch.show(body("a", 1))
    watch.list([body("a", 2)], 0.0)
    now.now = 119.0
    health.checked()
    assert health.problem() == ""
    now.now = 121.0
    assert "the watch has been missing listed changes for 121 s" in health.problem()


def test_health_fails_when_nothing_can_be_listed():
    now = Time()
    health = Health(Watch(), now)
    now.now = 1000.0
    assert health.problem() == "", "one that waits for its lease lists nothing"
    health.checked()
    now.now = 1180.0
    assert health.problem() == ""
    now.now = 1181.0
    assert "resources have not been listed for 181 s" in health.problem()


def test_the_probes_are_answered():
    now, watch = Time(), Watch()
    health = Health(watch, now)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def ask(session, path):
        async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def main():
        runner = await health.serve(port)
        async with aiohttp.ClientSession() as session:
            said = [await ask(session, "/healthz"), await ask(session, "/readyz")]
            health.ready = True
            said.append(await ask(session, "/readyz"))
            health.checked()
            now.now = 500.0
            said += [await ask(session, "/healthz"), await ask(session, "/readyz")]
        await runner.cleanup()
        return said

    dead = (503, "resources have not been listed for 500 s\n")
    assert asyncio.run(main()) == [(200, "ok\n"), (503, "waiting for the lease\n"), (200, "ok\n"), dead, dead]
