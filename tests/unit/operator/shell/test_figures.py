import asyncio
import json
import math
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from spatialstream.model.errors import Unavailable
from spatialstream_operator.decisions.rejects import Inflow
from spatialstream_operator.figures import Figures, read_figures
from spatialstream_operator.names import StreamNames
from spatialstream_operator.prometheus import Prometheus, Sample

NAMES = StreamNames("geo", "quakes")
AT = 1_795_262_400.5
# the beginning of a question -> the series that Prometheus 2.42 gives, without what all of them have
RECORDED = {
    '{__name__=~"': [
        ({"__name__": "spatialstream_imbalance_ratio"}, "12.5"),
        ({"__name__": "spatialstream_worker_active_version"}, "3"),
        ({"__name__": "spatialstream_worker_last_round_timestamp_seconds"}, "1795262399.25"),
        ({"__name__": "spatialstream_worker_cores"}, "2"),
        ({"__name__": "spatialstream_slot_load", "slot": "10"}, "4"),
        ({"__name__": "spatialstream_slot_load", "slot": "9"}, "50"),
    ],
    "timestamp(spatialstream_imbalance_ratio": [({}, str(AT))],
    "sum(rate(spatialstream_slot_objects_total": [({}, "120.5")],
    "sum(rate(spatialstream_slot_busy_seconds_total": [({}, "1.5")],
    "sum(rate(spatialstream_worker_task_seconds_total": [({}, "1.25")],
    "histogram_quantile(0.95": [({}, "0.75")],
    "count(spatialstream_leaf_objects": [({}, "64")],
    "sum(spatialstream_router_lag_messages": [({}, "17")],
    "sum by (kind) (increase(spatialstream_router_records_total": [
        ({"kind": "objects"}, "900"),
        ({"kind": "queries"}, "8"),
    ],
    "sum by (kind, reason) (increase(spatialstream_router_rejected_total": [
        ({"kind": "objects", "reason": "late"}, "90"),
        ({"kind": "objects", "reason": "json"}, "10"),
        ({"kind": "queries", "reason": "type"}, "0"),
    ],
    "sum(increase(spatialstream_worker_rejected_total": [({}, "2")],
}
OF_ROUTER = {
    "spatialstream_router_cores": [({}, "2")],
    "timestamp(spatialstream_router_cores": [({}, str(AT + 1))],
    "sum(rate(spatialstream_router_task_seconds_total": [({}, "0.5")],
    "sum(avg_over_time(spatialstream_router_lag_messages": [({}, "30")],
    "sum(deriv(spatialstream_router_lag_messages": [({}, "-2.5")],
    "sum(rate(spatialstream_router_messages_total": [({}, "60")],
}
INFLOWS = (Inflow("objects", 900.0, {"late": 90.0, "json": 10.0}), Inflow("queries", 6.0, {"admission": 2.0}))


def vector(series):
    common = {"namespace": "geo", "pod": "quakes-worker", "job": "pods"}
    result = [{"metric": common | labels, "value": [AT, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@asynccontextmanager
async def serving(answer):
    """A server that answers questions; gives its URL and what it was asked."""
    asked = []

    async def handle(request):
        question = (await request.post())["query"]
        asked.append(question)
        status, text = answer(question)
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/prefix/", asked
    finally:
        await runner.cleanup()


def read(answers, **more):
    def answer(question):
        (series,) = (series for begin, series in answers.items() if question.startswith(begin))
        return 200, json.dumps(vector(series))

    async def main():
        async with serving(answer) as (url, asked):
            return await read_figures(Prometheus(url), NAMES, 77, **more), asked

    return asyncio.run(main())


def without(*begins):
    return {begin: [] if begin in begins else series for begin, series in RECORDED.items()}


def test_what_prometheus_says():
    figures, asked = read(RECORDED)

    load, use = figures.load, figures.use
    assert (load.at, load.worked, load.version) == (1_795_262_400_500, 1_795_262_399_250, 3)
    assert (load.ratio, load.arrivals, load.slots) == (12.5, 120.5, (50.0, 4.0))
    assert (use.at, use.utilisation, use.delay) == (1_795_262_400_500, 0.625, 750)
    assert (use.growth, use.done) == (900 / 120 - 120.5, 120.5)
    assert figures == Figures(77, load, use, 750, 64, 17, INFLOWS)
    assert [each.share for each in INFLOWS] == [0.1, 0.25]
    assert len(asked) == len(RECORDED)
    for question in asked:
        assert 'namespace="geo",pod="quakes-' in question


def test_how_much_of_the_routers_executors_is_used_is_asked_where_it_has_any():
    figures, asked = read(RECORDED | OF_ROUTER, executors=True)

    use = figures.router
    assert (use.at, use.utilisation) == (1_795_262_401_500, 0.25)
    assert (use.delay, use.growth, use.done) == (500, -2.5, 60.0), "30 messages wait for half a second at 60 a second"
    assert sum('pod="quakes-router"' in question for question in asked) == len(OF_ROUTER) + 3
    for none in ({"spatialstream_router_cores": []}, {"sum(rate(spatialstream_router_task_seconds_total": []}):
        assert read(RECORDED | OF_ROUTER | none, executors=True)[0].router is None
    idle = OF_ROUTER | {"sum(rate(spatialstream_router_messages_total": [({}, "0")]}
    assert read(RECORDED | idle, executors=True)[0].router.delay is None


def test_nothing_is_known_of_a_stream_that_is_not_scraped():
    figures, _ = read(without(*RECORDED))

    assert figures == Figures(77)


@pytest.mark.parametrize("begin", list(RECORDED)[:3])
def test_a_load_without_one_of_its_figures_is_none(begin):
    figures, _ = read(without(begin))

    assert figures.load is None
    assert figures.problem == ""


def test_a_slot_without_load_makes_an_infinite_ratio():
    figures, _ = read(RECORDED | {'{__name__=~"': [*RECORDED['{__name__=~"'][1:], RECORDED['{__name__=~"'][0]]})
    assert figures.load.ratio == 12.5
    figures, _ = read(
        RECORDED
        | {'{__name__=~"': [({"__name__": "spatialstream_imbalance_ratio"}, "+Inf"), *RECORDED['{__name__=~"'][1:]]}
    )
    assert math.isinf(figures.load.ratio)


def test_no_number_is_no_figure():
    figures, _ = read(RECORDED | {"histogram_quantile(0.95": [({}, "NaN")], "sum(spatialstream_router_lag": []} | {})
    assert figures.delay is None


@pytest.mark.parametrize(
    "series",
    [
        [({"__name__": "spatialstream_slot_load", "slot": "first"}, "4"), *RECORDED['{__name__=~"']],
        [({}, "4"), *RECORDED['{__name__=~"']],
        [*RECORDED['{__name__=~"'], ({"__name__": "spatialstream_worker_active_version"}, "+Inf")],
    ],
    ids=["slot", "name", "version"],
)
def test_series_that_are_not_the_jobs_are_no_figures(series):
    figures, _ = read(RECORDED | {'{__name__=~"': series})

    assert figures.load is None
    assert figures.problem.startswith("Prometheus has series of another form")


def ask(status, text):
    async def main():
        async with serving(lambda _: (status, text)) as (url, _):
            return await Prometheus(url).query("up")

    return asyncio.run(main())


def test_samples():
    assert ask(200, json.dumps(vector([({"a": "b"}, "1"), ({}, "NaN"), ({}, "+Inf")]))) == [
        Sample({"namespace": "geo", "pod": "quakes-worker", "job": "pods", "a": "b"}, 1.0),
        Sample({"namespace": "geo", "pod": "quakes-worker", "job": "pods"}, math.inf),
    ]


@pytest.mark.parametrize(
    ("status", "text", "why"),
    [
        (503, "Service Unavailable", "another form"),
        (200, "", "another form"),
        (200, "[]", "another form"),
        (200, "null", "another form"),
        (200, "{}", "another form"),
        (200, '{"status": "success"}', "another form"),
        (200, '{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}', "another form"),
        (200, '{"status": "success", "data": {"result": [{"metric": {}, "value": []}]}}', "another form"),
        (200, '{"status": "success", "data": {"result": [{"metric": {}, "value": [1, "many"]}]}}', "another form"),
        (200, '{"status": "success", "data": {"result": [{"metric": {}, "values": [[1, "2"]]}]}}', "another form"),
        (
            400,
            '{"status": "error", "errorType": "bad_data", "error": "parse error"}',
            "refuses a question: parse error",
        ),
        (422, '{"status": "error"}', "no reason"),
    ],
)
def test_an_answer_of_another_form_is_none(status, text, why):
    with pytest.raises(Unavailable, match=why):
        ask(status, text)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "no url", "http://"])
def test_who_does_not_answer_is_out_of_reach(url):
    figures = asyncio.run(read_figures(Prometheus(url), NAMES, 77))

    assert "cannot be reached" in figures.problem
    assert (figures.at, figures.load, figures.use) == (77, None, None)
