"""Who may do what as a cluster says it: what is asked of it, and for how long an answer counts. See tests/api, too."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import RateLimits
from spatialstream.gateway.reviews import ReviewLimits, Reviews
from spatialstream.model.errors import Unavailable
from spatialstream.servers.process import await_condition
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import Topic, opener
from tests.unit.gateway.test_writing import CRQ, QuerySession, Stream

TOKEN = "token-of-the-dashboard"
DASHBOARD = {"username": "system:serviceaccount:geo:dashboard", "uid": "7", "groups": ["system:serviceaccounts"]}


class PlayedCluster:
    """Knows one token, and allows what is in ``allowed``."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.allowed = {("ask", "geo", "quakes")}
        self.known, self.away = True, False
        self.audiences: list[str] | None = None
        self.hold = asyncio.Event()
        self.hold.set()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        await self.hold.wait()
        if self.away:
            raise Unavailable("the cluster's API server does not answer")
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            if spec["token"] != TOKEN or not self.known:
                return {"status": {"error": "no"}}
            named = {} if self.audiences is None else {"audiences": self.audiences}
            return {"status": {"authenticated": True, "user": DASHBOARD, **named}}
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert (spec["user"], spec["uid"], spec["groups"]) == tuple(DASHBOARD.values())
        about = spec["resourceAttributes"]
        assert (about["group"], about["resource"]) == ("spatialstream.dev", "spatialstreams")
        return {"status": {"allowed": (about["verb"], about["namespace"], about["name"]) in self.allowed}}


@pytest.fixture
def cluster() -> PlayedCluster:
    return PlayedCluster()


def test_rights_are_verbs_on_the_resource_of_a_stream(cluster: PlayedCluster) -> None:
    gateway = Gateway([served("geo.quakes"), served("plain")], Access(reviews=Reviews(cluster)))
    with serving(gateway) as nobody:
        someone = Client(nobody.port, TOKEN)
        assert someone("POST", "/streams/geo.quakes/ask?no=1", {}, host="elsewhere").status == 400
        refused = someone("GET", "/streams/geo.quakes/results?query=x")
        assert refused.status == 403
        may_not = f"{DASHBOARD['username']} may not watch spatialstreams/quakes in the namespace geo"
        assert refused.json["detail"] == may_not
        assert someone("POST", "/streams/geo.quakes/queries", {}).status == 403
        assert someone("POST", "/streams/weather.quakes/ask", {}).status == 403
        for name in ("plain", ".quakes", "geo."):
            assert someone("POST", f"/streams/{name}/ask", {}).status == 404
        for token in ("wrong", TOKEN + "x", "", "é", "x" * 20_000):
            assert Client(nobody.port, token)("POST", "/streams/geo.quakes/ask", {}).status == 401
        assert nobody("POST", "/streams/geo.quakes/ask", {}).status == 401
        cluster.away = True
        assert someone("POST", "/streams/geo.other/ask", {}).headers["retry-after"] == "1"


def test_who_registers_is_the_account_that_the_cluster_knows(cluster: PlayedCluster) -> None:
    stream = Stream()
    cluster.allowed = {("write", "geo", "quakes")}
    behind = served("geo.quakes", lambda: QuerySession(stream), opener(stream.results), stream)
    with serving(Gateway([behind], Access(reviews=Reviews(cluster)))) as nobody:
        someone, path = Client(nobody.port, TOKEN), "/streams/geo.quakes/queries"
        assert someone("POST", path, CRQ | {"by": "sq/geo/floods"}).errors[0]["pointer"] == "#/by"
        assert someone("POST", path, CRQ).status == 201
    ((record, _),) = stream.sent
    assert record["by"] == "system:serviceaccount:geo:dashboard"


def test_who_may_follow_no_more_is_let_go(cluster: PlayedCluster) -> None:
    cluster.allowed = {("watch", "geo", "quakes")}
    access = Access(reviews=Reviews(cluster, limits=ReviewLimits(keep=0.01)))
    gateway = Gateway([served("geo.quakes", results=opener(Topic()))], access, limits=Limits(recheck=0.05))
    path = "/streams/geo.quakes/results?query=x"
    with serving(gateway) as nobody:
        someone = Client(nobody.port, TOKEN)
        connection = someone.connection()
        connection.request("GET", path, headers=someone.headers({"accept": "text/event-stream"}))
        answer = connection.getresponse()
        assert (answer.status, answer.readline()) == (200, b"retry: 500\n")
        cluster.away = True
        seen = len(cluster.asked)
        assert await_condition(lambda: len(cluster.asked) > seen + 2, 30.0)  # nobody says that the right has gone
        cluster.away, cluster.allowed = False, set()
        assert b"the token or its right has been revoked; come again" in answer.read()
        connection.close()
        assert someone("GET", path).status == 403


def test_who_tries_tokens_out_is_not_asked_about_and_keeps_nobody_out(cluster: PlayedCluster) -> None:
    limits, reviews = Limits(client=RateLimits(0.01, 250.0)), Reviews(cluster, limits=ReviewLimits(keep=0.0))
    with serving(Gateway([], Access(reviews=reviews), limits=limits)) as nobody:
        someone, path = Client(nobody.port, TOKEN), "/console/session"
        assert someone("GET", path).status == 200
        statuses = [Client(nobody.port, f"wrong-{number}")("GET", path).status for number in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert sorted({each["spec"]["token"] for each in cluster.asked}) == [TOKEN, "wrong-0", "wrong-1", "wrong-2"]
        assert someone("GET", path).status == 200
        cluster.away = True
        assert someone("GET", path).status == 503
        cluster.away, cluster.known = False, False
        assert someone("GET", path).status == 429  # he is none any more, and one more who is none
        asked = len(cluster.asked)
        assert someone("GET", path).status == 429
        assert len(cluster.asked) == asked


def test_an_answer_counts_for_a_while_and_is_asked_once_at_a_time(cluster: PlayedCluster) -> None:
    now = 0.0
    reviews = Reviews(cluster, clock=lambda: now)

    async def check() -> None:
        nonlocal now

        async def may(right: str) -> bool:
            caller = await reviews.caller(TOKEN)
            assert caller is not None
            try:
                await caller.check(right, "geo.quakes")
            except Problem:
                return False
            return True

        cluster.hold.clear()
        many = [asyncio.create_task(may("ask")) for _ in range(20)]
        await asyncio.sleep(0)
        many[0].cancel()
        cluster.hold.set()
        assert [await each for each in many[1:]] == [True] * 19
        assert len(cluster.asked) == 2
        assert not await may("write")
        cluster.allowed = {("write", "geo", "quakes")}
        now += ReviewLimits().keep_refusal
        assert await may("write")
        assert await may("ask")
        now += ReviewLimits().keep - ReviewLimits().keep_refusal
        assert not await may("ask")
        caller = await reviews.caller(TOKEN)
        assert caller is not None
        assert await caller.rights_on("geo.quakes") == {"write"}
        cluster.known = False
        now += ReviewLimits().keep
        assert await reviews.caller(TOKEN) is None
        cluster.known, cluster.away = True, True
        now += ReviewLimits().keep_refusal
        with pytest.raises(Unavailable):
            await reviews.caller(TOKEN)
        cluster.away = False
        assert await reviews.caller(TOKEN) is not None

    asyncio.run(check())


def test_what_is_kept_and_what_is_asked_at_a_time_is_bounded(cluster: PlayedCluster) -> None:
    reviews = Reviews(cluster, limits=ReviewLimits(most_kept=10, most_asked=6))

    async def check() -> None:
        for number in range(50):
            assert await reviews.caller(f"wrong-{number}") is None
        assert reviews.known == 10
        cluster.hold.clear()
        waiting = [asyncio.create_task(reviews.caller(f"slow-{number}")) for number in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="not available now"):
            await reviews.caller("slow-3")
        cluster.hold.set()
        assert await asyncio.gather(*waiting) == [None] * 3
        assert await reviews.caller(TOKEN) is not None

    asyncio.run(check())


@pytest.mark.parametrize(("named", "known"), [(["gateway"], True), (["api"], False), (None, False)])
def test_a_token_has_to_be_for_the_audience(cluster: PlayedCluster, named: list[str] | None, known: bool) -> None:
    cluster.audiences = named
    caller = asyncio.run(Reviews(cluster, ["gateway", "other"]).caller(TOKEN))

    assert (caller is not None) is known
    assert cluster.asked[0]["spec"]["audiences"] == ["gateway", "other"]


API = "https://kubernetes.default.svc"


def token_for(claims: Any) -> str:
    """A token as the cluster makes them: these claims, and a signature."""
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{part}.signature"


class Issuing(PlayedCluster):
    """Knows every token, and what each is for.

    Attributes:
        named: the audiences, by token.
    """

    named: dict[str, list[str]]

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        token, asked = body["spec"]["token"], body["spec"].get("audiences") or [API]
        meant = [each for each in asked if each in self.named[token]]
        return {"status": {"authenticated": True, "user": DASHBOARD, "audiences": meant} if meant else {}}


@pytest.mark.parametrize(
    ("claims", "named", "known"),
    [
        ({"aud": [API]}, [API], True),
        ({"aud": ["gateway"]}, ["gateway"], True),
        ({"aud": "other"}, ["other"], True),
        ({"aud": ["else"]}, ["else"], False),
        ({"aud": ["else", "gateway"]}, ["else", "gateway"], True),
        ({"aud": ["gateway"]}, ["else"], False),  # what it says of itself is not believed
        ({}, [API], True),
        ({"aud": 7}, [API], True),
        ({"aud": [7, ["gateway"]]}, [API], True),
        ([], [API], True),
    ],
)
def test_tokens_for_the_api_server_may_do_too(claims: Any, named: list[str], known: bool) -> None:
    cluster, token = Issuing(), token_for(claims)
    cluster.named = {token: named}
    reviews = Reviews(cluster, ["gateway", "other"], api_server=True)

    assert (asyncio.run(reviews.caller(token)) is not None) is known
    assert len(cluster.asked) == 1


@pytest.mark.parametrize(
    "token", ["opaque", "a.b.c", "a.!.c", "..", "e30." + "W1tb" * 4000, token_for({"aud": ["gateway"]}) + "x", "a.gA.c"]
)
def test_what_a_token_may_look_like(token: str) -> None:
    cluster = Issuing()
    cluster.named = {token: [API, "gateway"]}
    assert asyncio.run(Reviews(cluster, ["gateway"], api_server=True).caller(token)) is not None


def test_nothing_secret_is_shown(cluster: PlayedCluster) -> None:
    reviews = Reviews(cluster)
    assert TOKEN not in repr(asyncio.run(reviews.caller(TOKEN)))
    assert TOKEN not in repr(reviews._callers._answers)
