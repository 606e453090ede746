"""Who follows queries has every row of theirs once: from wherever, whoever reads it for them, and however often."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from spatialstream.client.cursor import Cursor
from spatialstream.gateway import feed as feed_module
from spatialstream.gateway.feed import OLDEST, Feed, FeedLimits, Listener
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import Turn, Turns
from spatialstream.model.errors import Gone, Unavailable
from tests.lengths import examples
from tests.unit.client.broker import Topic
from tests.unit.gateway.results import in_parts, messages, opener, row


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60.0):
            await test()

    asyncio.run(limited())


async def collect(listener: Listener, patience: float = 0.05) -> list[bytes]:
    """What comes until nothing does."""
    found: list[bytes] = []
    while (rows := await listener.rows(patience)) or listener.behind:
        found += [each.line for _, each in rows]
    return found


def limits(chance: random.Random) -> FeedLimits:
    return FeedLimits(kept=chance.randint(1, 9_000), back=chance.randint(1, 9))


@pytest.mark.parametrize("seed", range(examples(40, 1_000)))
def test_every_row_comes_once_whoever_comes_again_when_and_where(seed: int) -> None:
    """Rounds that are done again in part, rows in parts, connections and processes that end, and little is kept."""
    chance, expected, number = random.Random(seed), list[str](), 0
    topic = [Topic() for _ in range(chance.choice([1, 1, 2, 3]))]

    def grow() -> None:
        nonlocal number
        for _ in range(chance.randint(0, 2)):
            lines: list[list[bytes]] = [[] for _ in topic]
            for name in range(number * 10, number * 10 + chance.randint(1, 4)):
                query = chance.choice("xyz")
                lines["xyz".index(query) % len(topic)] += (
                    [row(query, name)] if chance.random() < 0.7 else in_parts(query, name, 3)
                )
                expected.extend([f"{query}{name}"] if query in "xy" else [])
            for partition, its in zip(topic, lines, strict=True):
                sent = messages(its, chance.randint(1, 3), number)
                partition.messages += sent[: chance.randint(0, len(sent))]  # and then a crash
                partition.messages += sent
            number += 1

    async def test() -> None:
        feeds, had = [Feed("s", opener(*topic), limits(chance))], list[bytes]()
        place: Cursor | str = OLDEST
        for _ in range(chance.randint(1, 4)):
            grow()
            if chance.random() < 0.5:
                feeds.append(Feed("s", opener(*topic), limits(chance)))
            async with chance.choice(feeds).listen(["x", "y"], place) as listener:
                grow()
                for _ in range(chance.randint(0, 3)):
                    rows = await listener.rows(0.02)
                    some = rows[: chance.randint(0, len(rows))]  # the others are lost on their way
                    had += [each.line for _, each in some]
                    place = some[-1][0] if some else place if rows else listener.cursor
                    if len(some) < len(rows):
                        break
            place = Cursor.parse(str(place)) if isinstance(place, Cursor) else place
        async with feeds[-1].listen(["x", "y"], place) as listener:
            while len(had) < len(expected) and (rows := await listener.rows(20.0)):
                had += [each.line for _, each in rows]
            had += await collect(listener)
        for each in feeds:
            each.end("over")
        rows = [json.loads(line) for line in had]
        names = [f"{each['query']}{each['t']}" for each in rows]
        for query in "xy":  # rows of different queries may be in different partitions
            assert [each for each in names if each[0] == query] == [each for each in expected if each[0] == query]
        assert len(topic) > 1 or names == expected
        assert not any("part" in each for each in rows)

    run(test)


def test_from_now_on_and_from_where_nothing_is() -> None:
    topic = Topic(messages([row("x", 1)], 1, 0))

    async def test() -> None:
        feed = Feed("s", opener(topic))
        async with feed.listen(["x"]) as listener:
            assert await collect(listener) == []
            word = str(listener.cursor)
            topic.messages += messages([row("x", 2), row("y", 3), row("x", 4)], 2, 1)
            assert await collect(listener) == [row("x", 2), row("x", 4)]
        async with feed.listen(["y", "unknown"], Cursor.parse(word)) as listener:
            assert await collect(listener) == [row("y", 3)]
        topic.first = 1
        again = Feed("s", opener(topic))
        for place in (Cursor.of([0]), Cursor.of([99])):
            with pytest.raises(Gone, match="holds offsets 1 to 3"):
                async with again.listen(["x"], place):
                    pass
        async with again.listen(["x"], Cursor.of([3])) as listener:
            topic.messages += messages([row("x", 5)], 1, 2)
            assert await collect(listener) == [row("x", 5)]
        async with again.listen(["x"], OLDEST) as listener:
            assert await collect(listener) == [row("x", 2), row("x", 4), row("x", 5)]
        feed.end("over")
        again.end("over")

    run(test)


def test_a_place_in_results_that_were_made_anew_is_none() -> None:
    topic = Topic(messages([row("x", 1), row("x", 2)], 1, 0))

    async def word() -> Cursor:
        feed = Feed("s", opener(topic))
        async with feed.listen(["x"]) as listener:
            feed.end("over")
            return Cursor.parse(str(listener.cursor))

    async def test() -> None:
        before = await word()
        topic.messages, topic.id = messages([row("x", each) for each in range(9)], 1, 0, incarnation="b"), "another"
        feed = Feed("s", opener(topic))
        for place in (before, Cursor.of([0, 0])):
            with pytest.raises(Gone, match="recreated"):
                async with feed.listen(["x"], place):
                    pass
        feed.end("over")

    run(test)


def test_who_is_slow_is_let_go_and_holds_nobody_back() -> None:
    topic = Topic()
    lines = [row("x", number) for number in range(100)]

    async def test() -> None:
        feed = Feed("s", opener(topic), FeedLimits(waiting=20 * len(lines[0])))
        async with feed.listen(["x"]) as slow, feed.listen(["x"]) as quick:
            for each in (slow, quick):
                assert await each.rows(0.0) == []
            had = []
            for number in range(100):
                topic.messages += messages([lines[number]], 1, number)
                had += [each.line for _, each in await quick.rows(5.0)]
            assert had == lines
            assert slow.over == "rows arrive faster than they are read"
            rows = await slow.rows(0.0)
            assert [each.line for _, each in rows] == lines[: len(rows)]
            assert 0 < len(rows) <= 20
        async with feed.listen(["x"], slow.cursor) as again:
            assert [each.line for _, each in rows] + await collect(again) == lines
        feed.end("over")

    run(test)


def test_who_is_slow_to_read_what_lies_back_leaves_it_to_others_and_comes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_PAST": 1, "_SHARE": 1, "_TURN": 0.2, "_PIECE": 200}.items():
        monkeypatch.setattr(feed_module, name, value)
    lines = [row("x", number) for number in range(100)]
    topic = Topic(messages(lines, 1, 0))

    async def test() -> None:
        feed = Feed("s", opener(topic), FeedLimits(back=1))
        had = list[bytes]()
        place: Cursor | str = OLDEST
        for _ in range(3):
            async with feed.listen(["x"], place, "slow") as slow:
                had += [each.line for _, each in await slow.rows(20.0)]
                async with feed.listen(["x"], OLDEST, "quick") as quick:
                    assert slow.over == "other connections wait to read past results"
                    assert await collect(quick) == lines
                assert await slow.rows(20.0) == []
                place = slow.cursor
        assert had == lines[: len(had)]
        assert len(had) < 50
        async with feed.listen(["x"], place, "slow") as slow:
            assert had + await collect(slow) == lines
        feed.end("over")

    run(test)


def test_who_has_to_leave_before_anything_is_open_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def taken(turns: Turns, client: str, leave: Callable[[], object]) -> Turn:
        leave()
        return Turn(client, leave)

    monkeypatch.setattr(Turns, "take", taken)
    topic = Topic(messages([row("x", 1), row("x", 2)], 1, 0))

    async def test() -> None:
        feed = Feed("s", opener(topic), FeedLimits(back=1))
        with pytest.raises(Unavailable, match="other connections wait"):
            async with feed.listen(["x"], Cursor.of([0])):
                pass
        feed.end("over")

    run(test)


def test_what_cannot_be_read_is_told_and_tried_again() -> None:
    topic, away = Topic(messages([row("x", 1)], 1, 0)), ["the broker is away"]

    def opened(start: int) -> Any:
        if away:
            raise Unavailable(away[0])
        return opener(topic)(start)

    async def test() -> None:
        feed = Feed("s", opened, FeedLimits(listeners=1))
        with pytest.raises(Unavailable, match="away"):
            async with feed.listen(["x"]):
                pass
        away.clear()
        async with feed.listen(["x"], OLDEST) as listener:
            assert await collect(listener) == [row("x", 1)]
            with pytest.raises(Problem, match="1 connections"):
                async with feed.listen(["x"]):
                    pass
            feed.end("the gateway is shutting down")
            assert await listener.rows(5.0) == []
            assert listener.over == "the gateway is shutting down"
        with pytest.raises(Unavailable, match="shutting down"):
            async with feed.listen(["x"]):
                pass

    run(test)
