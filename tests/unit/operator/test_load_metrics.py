import asyncio
import json
import math
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.decisions.rejects import Inflow
from spatialstream_operator.load_metrics import LoadMetrics, read_load_metrics
from spatialstream_operator.names import StreamNames
from spatialstream_operator.prometheus import Prometheus, PrometheusAccess, Sample
from spatialstream_operator.steps.measuring import server_of
from tests.certificates import Authority
from tests.unit.operator.garbled import garbled

NAMES = StreamNames("geo", "quakes")
AT = 1_795_262_400.5
# the beginning of a query -> the series that Prometheus 2.42 gives, without what all of them have
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
    """A server that answers queries; gives its URL and what it was asked."""
    asked = []

    async def handle(request):
        query = (await request.post())["query"]
        asked.append(query)
        status, text = answer(query)
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/prefix/", asked
    finally:
        await runner.cleanup()


def read(answers, **more):
    def answer(query):
        (series,) = (series for begin, series in answers.items() if query.startswith(begin))
        return 200, json.dumps(vector(series))

    async def main():
        async with serving(answer) as (url, asked):
            return await read_load_metrics(Prometheus(url), NAMES, 77, **more), asked

    return asyncio.run(main())


def without(*begins):
    return {begin: [] if begin in begins else series for begin, series in RECORDED.items()}


def test_what_prometheus_says():
    metrics, asked = read(RECORDED)

    load, use = metrics.load, metrics.use
    assert (load.at, load.worked, load.version) == (1_795_262_400_500, 1_795_262_399_250, 3)
    assert (load.ratio, load.arrivals, load.slots) == (12.5, 120.5, (50.0, 4.0))
    assert (use.at, use.utilisation, use.delay) == (1_795_262_400_500, 0.625, 750)
    assert (use.growth, use.done) == (900 / 120 - 120.5, 120.5)
    assert metrics == LoadMetrics(77, load, use, 750, 64, 17, INFLOWS)
    assert [each.share for each in INFLOWS] == [0.1, 0.25]
    assert len(asked) == len(RECORDED)
    for query in asked:
        assert 'namespace="geo",pod="quakes-' in query


def test_how_much_of_the_routers_executors_is_used_is_asked_where_it_has_any():
    metrics, asked = read(RECORDED | OF_ROUTER, executors=True)

    use = metrics.router
    assert (use.at, use.utilisation) == (1_795_262_401_500, 0.25)
    assert (use.delay, use.growth, use.done) == (500, -2.5, 60.0), "30 messages wait for half a second at 60 a second"
    assert sum('pod="quakes-router"' in query for query in asked) == len(OF_ROUTER) + 3
    for none in ({"spatialstream_router_cores": []}, {"sum(rate(spatialstream_router_task_seconds_total": []}):
        assert read(RECORDED | OF_ROUTER | none, executors=True)[0].router is None
    idle = OF_ROUTER | {"sum(rate(spatialstream_router_messages_total": [({}, "0")]}
    assert read(RECORDED | idle, executors=True)[0].router.delay is None


def test_nothing_is_known_of_a_stream_that_is_not_scraped():
    metrics, _ = read(without(*RECORDED))

    assert metrics == LoadMetrics(77)


@pytest.mark.parametrize("begin", list(RECORDED)[:3])
def test_a_load_without_one_of_its_figures_is_none(begin):
    metrics, _ = read(without(begin))

    assert metrics.load is None
    assert metrics.problem == ""


def test_a_slot_without_load_makes_an_infinite_ratio():
    metrics, _ = read(RECORDED | {'{__name__=~"': [*RECORDED['{__name__=~"'][1:], RECORDED['{__name__=~"'][0]]})
    assert metrics.load.ratio == 12.5
    metrics, _ = read(
        RECORDED
        | {'{__name__=~"': [({"__name__": "spatialstream_imbalance_ratio"}, "+Inf"), *RECORDED['{__name__=~"'][1:]]}
    )
    assert math.isinf(metrics.load.ratio)


def test_no_number_is_no_figure():
    metrics, _ = read(RECORDED | {"histogram_quantile(0.95": [({}, "NaN")], "sum(spatialstream_router_lag": []} | {})
    assert metrics.delay is None


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
    metrics, _ = read(RECORDED | {'{__name__=~"': series})

    assert metrics.load is None
    assert metrics.problem.startswith("Prometheus has series in an unexpected form")


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
        (503, "Service Unavailable", "unexpected response"),
        (200, "", "unexpected response"),
        (200, "[]", "unexpected response"),
        (200, "null", "unexpected response"),
        (200, "{}", "unexpected response"),
        (200, '{"status": "success"}', "unexpected response"),
        (200, '{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}', "unexpected response"),
        (200, '{"status": "success", "data": {"result": [{"metric": {}, "value": []}]}}', "unexpected response"),
        (
            200,
            '{"status": "success", "data": {"result": [{"metric": {}, "value": [1, "many"]}]}}',
            "unexpected response",
        ),
        (
            200,
            '{"status": "success", "data": {"result": [{"metric": {}, "values": [[1, "2"]]}]}}',
            "unexpected response",
        ),
        (
            400,
            '{"status": "error", "errorType": "bad_data", "error": "parse error"}',
            "rejects a query: parse error",
        ),
        (422, '{"status": "error"}', "no reason"),
    ],
)
def test_an_answer_of_another_form_is_none(status, text, why):
    with pytest.raises(Unavailable, match=why):
        ask(status, text)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "no url", "http://"])
def test_who_does_not_answer_is_out_of_reach(url):
    metrics = asyncio.run(read_load_metrics(Prometheus(url), NAMES, 77))

    assert "cannot be reached" in metrics.problem
    assert (metrics.at, metrics.load, metrics.use) == (77, None, None)


# ------------------------------------------------------------------------------------ one that asks who the operator is


class Guarded:
    """A Prometheus that speaks TLS, and answers who shows its token.

    Attributes:
        token: that it asks for.
        headers: of the last query.
        elsewhere: where it sends those who ask; None: it answers itself.
    """

    def __init__(self, files, token):
        self.token, self.headers, self.elsewhere = token, {}, None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certify(files)

    def certify(self, files):
        self._context.load_cert_chain(files.certificate, files.key)

    async def _answer(self, request):
        self.headers = request.headers
        if self.elsewhere is not None:
            raise web.HTTPTemporaryRedirect(self.elsewhere)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401, text="Unauthorized")
        return web.json_response(vector([({}, "17")]))

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/api/v1/query", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def guarded(authority, tmp_path):
    return Guarded(authority.issue(tmp_path / "own"), "first")


@pytest.fixture
def access(authority, tmp_path):
    folder = tmp_path / "access"
    folder.mkdir()
    (folder / "token").write_text("first\n")
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "headers").write_text("X-Scope-OrgID: geo\nX-Other:  a b: c\n\n")
    return PrometheusAccess(folder)


def test_token_and_headers_are_shown(guarded, access):
    async def main():
        async with guarded:
            access.check(guarded.url)
            assert await Prometheus(guarded.url, access).value("up") == 17.0
            assert (guarded.headers["X-Scope-OrgID"], guarded.headers["X-Other"]) == ("geo", "a b: c")

    asyncio.run(main())


def test_what_is_renewed_counts_from_the_next_query_on(guarded, access, tmp_path):
    async def main():
        async with guarded:
            prometheus = Prometheus(guarded.url, access)
            assert await prometheus.value("up") == 17.0
            guarded.token = "second"
            with pytest.raises(Unavailable, match=r"denies access to the operator \(401\)"):
                await prometheus.value("up")
            (access.folder / "token").write_text("second")
            (access.folder / "headers").unlink()
            assert await prometheus.value("up") == 17.0
            assert "X-Scope-OrgID" not in guarded.headers
            following = Authority("following")
            guarded.certify(following.issue(tmp_path / "following"))
            with pytest.raises(Unavailable, match=r"cannot be reached: .*certificate verify failed"):
                await prometheus.value("up")
            (access.folder / "ca.crt").write_text("half of a c")
            with pytest.raises(Unavailable, match=r"cannot be queried: .*ca.crt holds no certificate"):
                await prometheus.value("up")
            (access.folder / "ca.crt").write_bytes(following.certificate)
            assert await prometheus.value("up") == 17.0

    asyncio.run(main())


def test_a_token_is_for_the_operators_own_prometheus_alone(guarded, access):
    async def main():
        async with guarded:
            config = OperatorConfig(prometheus_url=guarded.url, prometheus_access=str(access.folder))
            assert await server_of(config, guarded.url, "geo").value("up") == 17.0
            for url in (f"{guarded.url}/", guarded.url.replace("https", "http")):
                with pytest.raises(Unavailable):
                    await server_of(config, url, "geo").value("up")
            async with serving(lambda _: (200, json.dumps(vector([({}, "1")])))) as (other, asked):
                guarded.elsewhere = f"{other}api/v1/query"
                with pytest.raises(Unavailable):
                    await server_of(config, guarded.url, "geo").value("up")
                assert asked == []

    asyncio.run(main())


def test_one_without_token_is_known_by_the_systems_authorities(guarded, access):
    async def main():
        async with guarded:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await Prometheus(guarded.url).value("up")
            (access.folder / "ca.crt").unlink()
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await Prometheus(guarded.url, access).value("up")

    asyncio.run(main())


def test_what_a_query_bore_is_not_told_with_an_answer_that_is_none(tmp_path):
    """What a Prometheus that cannot be queried says comes into the status of every stream."""
    (tmp_path / "headers").write_text("X-Scope-OrgID: secret")

    async def main():
        async with garbled() as url:
            login = url.replace("//", "//me:secret@")
            for each in (Prometheus(url, PrometheusAccess(tmp_path)), Prometheus(login)):
                metrics = await read_load_metrics(each, NAMES, 77)
                assert metrics.problem.startswith(
                    f"Prometheus at {url} cannot be reached: ClientResponseError: 400, Bad status line: "
                )
                assert "secret" not in metrics.problem

    asyncio.run(main())


@pytest.mark.parametrize(
    ("files", "url", "why"),
    [
        ({}, "https://p", "holds none of the files token, ca.crt and headers"),
        ({"password": "abc"}, "https://p", "holds none of the files"),
        ({"token": "secret"}, "", "SPATIALSTREAM_OPERATOR_PROMETHEUS_URL"),
        ({"token": "secret"}, "http://p:9090", "would be sent to http://p:9090 in plain text; give an https:// URL"),
        ({"headers": "authorization: Basic secret"}, "http://p", "the token would be sent to http://p in plain text"),
        (
            {"headers": "X-Scope-OrgID: geo\nX-Api-Key: secret"},
            "http://me:secret@p",
            "the header X-Api-Key would be sent to http://p in plain text; give an https:// URL",
        ),
        ({"headers": "Cookie: secret", "ca.crt": ""}, "http://p", "ca.crt holds no certificate"),
        ({"token": "\n"}, "https://p", "token holds no token"),
        ({"token": "secret\nmore"}, "https://p", "token holds no token; give it alone"),
        ({"ca.crt": "secret"}, "https://p", "ca.crt holds no certificate; give it as PEM"),
        ({"ca.crt": ""}, "https://p", "ca.crt holds no certificate"),
        ({"headers": "A: b\nsecret"}, "https://p", "headers line 2 is not 'Name: value'"),
        ({"headers": "A b: secret"}, "https://p", "headers line 1"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(tmp_path, files, url, why):
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(SettingError, match=f"^SPATIALSTREAM_OPERATOR_PROMETHEUS_ACCESS: .*{why}") as caught:
        PrometheusAccess(tmp_path).check(url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["X-Scope-OrgID", "THANOS-TENANT"])
def test_who_the_tenant_is_may_be_sent_in_clear(tmp_path, name):
    (tmp_path / "headers").write_text(f"{name}: geo")
    PrometheusAccess(tmp_path).check("http://prometheus:9090")


@pytest.mark.parametrize(("name", "text"), [("token", "secret"), ("headers", "X-Api-Key: secret")])
def test_what_comes_into_the_secret_later_is_not_sent_in_clear_either(tmp_path, name, text):
    (tmp_path / "headers").write_text("X-Scope-OrgID: geo")

    async def main():
        async with serving(lambda _: (200, json.dumps(vector([({}, "17")])))) as (url, asked):
            access = PrometheusAccess(tmp_path)
            access.check(url)
            assert await Prometheus(url, access).value("up") == 17.0
            (tmp_path / name).write_text(text)
            with pytest.raises(Unavailable, match=r"cannot be queried: .* in plain text; give an https:// URL"):
                await Prometheus(url, access).value("up")
            assert len(asked) == 1

    asyncio.run(main())
