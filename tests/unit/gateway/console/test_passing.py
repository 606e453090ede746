"""Objects as they pass, for those who look at a map: who takes nothing when it ends is no failure of the others."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from spatialstream.client.live_sample import Seen
from spatialstream.gateway.console.passing import Passing


class Nothing:
    """A topic in which nothing passes."""

    def take(self, seconds: float, most: int) -> Seen:
        time.sleep(0.01)
        return Seen([], 0, True)

    def close(self) -> None:
        pass


def test_who_is_to_end_and_takes_nothing_is_no_failure_of_those_who_look_now() -> None:
    async def look() -> None:
        passing = Passing("s", Nothing)
        async with aclosing(await passing.events()) as slow, aclosing(await passing.events()) as quick:
            assert await anext(slow) == b"retry: 1000\n\n"
            passing.fail(passing.reader)
            assert await anext(quick) == b"retry: 1000\n\n"
            for _ in range(20):
                passing.publish(passing.reader, Seen([], 1, True))
            assert b'"count": 2' in await anext(quick)
            assert [each async for each in slow] == []
        assert passing.reader is None

    asyncio.run(look())
