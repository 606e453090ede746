"""Writes to a stream: objects, registrations and cancellations.

Success is reported only once it is certain: for objects when the broker has acknowledged them, for a query when the
stream has registered it, as shown by a probe (:mod:`~spatialstream.client.record_writer`). Requests for which there is
no room are refused before anything is sent, and before more of their body is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from spatialstream.client.query_session import checked_query
from spatialstream.client.record_writer import probe_of
from spatialstream.client.stream import Stream, TimeLimits
from spatialstream.gateway.areas import resolved
from spatialstream.gateway.body_layouts import BodyLayout
from spatialstream.gateway.problems import SHOWN, Problem, of_record
from spatialstream.gateway.rates import Shares, Taken
from spatialstream.gateway.streams import ServedStream
from spatialstream.gateway.threads import CLIENT, Threads
from spatialstream.model.arrays import Ints
from spatialstream.model.errors import RecordError, Unavailable
from spatialstream.model.kinds import listed
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Query
from spatialstream.model.query_fields import check_by
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import check_time, format_duration, looks_like, looks_unlike
from spatialstream.records.decode import decode_objects
from spatialstream.records.reasons import in_the_future, reason_class, too_old
from spatialstream.records.reference import Decoded

__all__ = ["BLOCK", "Outcome", "Writer"]

_CONTINUOUS = listed(lambda kind: kind.continuous)
_THREADS, _SHARE = 8, 4
_MOST_REGISTERING = 1_024
"""Most pending registrations of all clients, and most pending cancellations."""
_LOOK_SECONDS = (0.5, 4.0)
"""Seconds between two reads of the dead letters: the first, and the longest."""
_CLOCK_WAIT = 1.0
"""Seconds for which a known clock is used, since it only advances; for which a request waits for it; and for which an
unknown one is not asked for again."""
_APART = 1_000
"""ms by which the day's clock may differ here and at the router, or a record be read later than it is sent."""
_BOM = b"\xef\xbb\xbf"
BLOCK = 64 << 10
"""Bytes of lines that are decoded at a time, about."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a registration or a cancellation.

    Attributes:
        query: the query's id.
        as_of: a round by which it was processed, and the stream's clock then; None: it is still pending.
        position: a position in the results before the query's first row.
        before: whether it had been registered before, with the same key.
    """

    query: str
    as_of: dict[str, int] | None
    position: str
    before: bool = False


class Writer:
    """Writes to one stream.

    Args:
        stream: the stream.
        most: most bytes of objects under way.
        fresh: seconds for which the stream's clock, once known, is used.
        again: seconds after which a clock that did not come is asked for again.

    Attributes:
        refreshing: held while queries of an area are registered anew.
    """

    def __init__(self, stream: ServedStream, most: int, fresh: float = 1.0, again: float = 10.0) -> None:
        self._stream, self._record_writer, self._room = stream, stream.record_writer, Shares(most, "bytes under way")
        # an unavailable broker blocks the sending of objects for minutes, so queries have threads of their own
        self._of_objects = Threads(_THREADS, _SHARE, f"objects-{stream.name}")
        self._of_queries = Threads(_THREADS, _SHARE, f"queries-{stream.name}")
        self._registering = Shares(_MOST_REGISTERING, "pending registrations")
        self._cancelling = Shares(_MOST_REGISTERING, "pending cancellations")
        self._clock: tuple[float, int | None] = float("-inf"), None
        self._fresh, self._again = fresh, again
        self.refreshing = threading.Lock()

    @property
    def under_way(self) -> int:
        """Bytes of objects being received, waiting to be sent or being sent."""
        return self._room.taken

    def close(self) -> None:
        """Start no more calls."""
        for each in (self._of_objects, self._of_queries):
            each.close()

    # ------------------------------------------------------------------------------------------------------- objects

    async def objects(
        self, read: Callable[[Taken], Awaitable[bytes]], *, sure: bool = False, layout: BodyLayout | None = None
    ) -> int:
        """Send objects, all or none; return their number.

        Args:
            read: reads the body, and takes the room that it needs.
            sure: whether to accept times as ms even if they look like another unit.
            layout: how the body is laid out; None: as JSON Lines.

        Raises:
            Problem: one of them is unusable, or of a time that the stream does not take, and which; their times look as
                if they were not ms; or there is no room.
            Unavailable: the broker may not have all of them.
        """
        taken = Taken(self._room, CLIENT.get())
        with ExitStack() as held:
            held.callback(taken.give)
            lines = await read(taken)
            stream = await self._stream.opened()
            clock = await self._known_clock()

            def work() -> int:
                content = lines.removeprefix(_BOM)
                place = _line if layout is None else partial(layout.place, content)
                blocks = (_blocks if layout is None else layout.blocks)(content, stream.space, stream.rule)
                parsed = _Objects.of(blocks, place)
                if not sure:
                    _check_times(parsed, stream)
                _check_limits(parsed, stream.limits(), clock, time.time_ns() // 1_000_000, place)
                if len(parsed.t):
                    self._record_writer.objects(content if layout is None else b"\n".join(parsed.lines))
                return len(parsed.t)

            over = held.pop_all().close
        return await self._of_objects.run(work, over=over)

    async def _known_clock(self) -> int | None:
        """The stream's clock, or an earlier one; None: it is not known.

        The broker accepts objects while the stream is down, so few requests wait for a clock that does not come.
        """
        until, clock = self._clock
        if time.monotonic() > until:
            clock = None
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_CLOCK_WAIT):
                    as_of = await self._stream.as_of()
                clock = None if as_of is None else as_of["clock"]
            self._clock = time.monotonic() + (self._again if clock is None else self._fresh), clock
        return clock

    # ------------------------------------------------------------------------------------------------------- queries

    async def register(
        self,
        fields: Any,
        key: str | None,
        caller: str,
        timeout: float,
        *,
        for_others: bool = False,
        sure: bool = False,
    ) -> Outcome:
        """Register a continuous query, and wait until it is registered.

        Args:
            fields: the query; without ``t`` it starts at the stream's clock.
            key: idempotency key: registrations with the same key, caller and query are the same; None: no key.
            caller: name of the caller, which is stored with the query.
            timeout: seconds to wait.
            for_others: whether the caller may register on behalf of somebody else (``by``).
            sure: whether its time is ms even if it looks like something else.

        Raises:
            Problem: it is not a continuous query, its id is in use, or its time looks as if it were not ms.
            SettingError: it is of an area that the stream does not know.
            Unavailable: it may not have been sent.
        """
        by = _by(fields, caller, for_others=for_others)
        if isinstance(fields, dict):  # who registers a query is not part of the query
            fields = {name: value for name, value in fields.items() if name != "by"}
        if isinstance(fields, dict) and key is not None:
            if fields.get("id") is not None:
                raise of_record("#", "id: give either an id or an Idempotency-Key; an id is itself a key")
            fields = {**fields, "id": _id_of(key, caller, fields)}
        stream = await self._stream.opened()
        ((_, fields),) = await resolved(self._stream, [("#", fields)])
        record, query = checked_query("#", fields, stream.space, stream.rule)
        if not isinstance(query, Query) or not query.lifetime.continuous:
            raise of_record("#", f"type: {record['type']} is not a continuous query ({_CONTINUOUS}); POST it to /ask")
        if not sure and "t" in record and looks_like(np.array([query.t])) is not None:
            as_of = await self._stream.as_of()
            try:
                check_time(record["t"], time.time_ns() // 1_000_000 if as_of is None else as_of["clock"])
            except RecordError as error:
                raise of_record("#", f"{error}, or time_unit=ms if it is right") from None
        outcome, reason = await self._send(stream, {**record, "by": by}, timeout, self._registering)
        # the id itself has been checked, so a rejection of this class means that another query has it
        if reason is not None and reason_class(reason) == "id":
            if key is None:
                raise Problem("conflict", reason, [{"pointer": "#/id", "detail": reason.partition(": ")[2]}])
            return replace(outcome, before=True)
        if reason is not None:
            raise of_record("#", reason)
        return outcome

    async def cancel(self, name: str, timeout: float) -> Outcome:
        """Cancel a continuous query, and wait until that is done.

        Raises:
            Problem: no query with this id is registered.
            Unavailable: it may not have been sent.
        """
        stream = await self._stream.opened()
        record, _ = checked_query("#", {"id": name, "type": "CANCEL"}, stream.space, stream.rule)
        outcome, reason = await self._send(stream, record, timeout, self._cancelling)
        if reason is not None:
            raise Problem("not-found", reason)
        return outcome

    async def _send(
        self, stream: Stream, record: dict[str, Any], timeout: float, waiting: Shares
    ) -> tuple[Outcome, str | None]:
        """Send a record with a probe; return the outcome, and the reason if it was rejected."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        with waiting.held(CLIENT.get()):
            as_of = await self._stream.as_of()
            # use the stream's own clock: a record of an earlier time counts from its arrival, and one of a later time
            # would advance the clock of a stream whose times are not the current ones
            now = time.time_ns() // 1_000_000 if as_of is None else as_of["clock"]
            record = {"t": now, **record}
            probe = probe_of(record["t"], stream.space)
            async with self._stream.feed.listen([probe["id"]], counted=False) as listener:
                outcome = Outcome(record["id"], None, str(listener.cursor))
                sent = await self._of_queries.run(lambda: self._record_writer.queries(record, probe))
                number, pause = None, _LOOK_SECONDS[0]
                while number is None and not sent.refused and listener.over is None and loop.time() < until:
                    if rows := await listener.rows(min(pause, max(0.0, until - loop.time()))):
                        number = rows[0][1].place.round
                    else:
                        await self._of_queries.run(lambda: self._record_writer.poll(sent))
                        pause = min(2 * pause, _LOOK_SECONDS[1])
            if number is not None:
                done = await self._stream.wait(lambda as_of: as_of["round"] >= number, until)
                if done is not None and done["round"] >= number:  # so the round's dead letters have been sent
                    await self._of_queries.run(lambda: self._record_writer.poll(sent))
                    return replace(outcome, as_of=done), sent.refused.get(1)
            return outcome, sent.refused.get(1)


def _by(body: Any, caller: str, *, for_others: bool) -> str:
    """Who registers a query: the caller, unless it names somebody else and may do so.

    Raises:
        Problem: it may not, or the name cannot be stored with a query.
    """
    name = body.get("by") if isinstance(body, dict) else None
    if name is not None and not for_others:
        raise of_record("#", f"by: is set by the gateway, to the caller {caller}; leave it out")
    try:
        return check_by(caller if name is None else name)
    except RecordError as error:
        if name is not None:
            raise of_record("#", str(error)) from None
        raise Problem("forbidden", f"the caller's name cannot be stored with a query: {error.problem}") from None


def _id_of(key: str, caller: str, given: dict[str, Any]) -> str:
    """The id of a registration with a key: a digest of caller, key and query."""
    said = json.dumps([caller, key, given], sort_keys=True)
    return f"q-{hashlib.sha256(said.encode()).hexdigest()[:32]}"


_Place = Callable[[int], dict[str, Any]]
"""Where in a body the record of a number is."""


@dataclass(frozen=True, slots=True)
class _Objects:
    """The objects of a body, as far as is looked at.

    Attributes:
        t: their times, ms, int64[n].
        numbers: of their records, int64[n].
        times: the values of each property that is a time, ms, without missing ones.
        lines: the objects as JSON Lines, in blocks; empty ones if they came as such.
    """

    t: Ints
    numbers: Ints
    times: dict[str, Ints]
    lines: list[bytes]

    @classmethod
    def of(cls, blocks: Iterable[tuple[Decoded[ObjectBatch], bytes]], place: _Place) -> _Objects:
        """From decoded blocks.

        Raises:
            Problem: some are unusable; names the first ones, and looks no further than these.
        """
        t, numbers, times, lines = list[Ints](), list[Ints](), dict[str, list[Ints]](), list[bytes]()
        rejected = list[dict[str, Any]]()
        for decoded, block in blocks:
            rejected += decoded.rejected.slice(0, SHOWN).to_pylist()
            if len(rejected) >= SHOWN:
                raise _unusable(rejected[:SHOWN], place, whole=False)
            t.append(decoded.batch.t)
            numbers.append(decoded.line)
            lines.append(block)
            for name, values in decoded.batch.properties.times():
                times.setdefault(name, []).append(values)
        if rejected:
            raise _unusable(rejected, place)
        return cls(_joined(t), _joined(numbers), {name: _joined(parts) for name, parts in times.items()}, lines)


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _blocks(content: bytes, space: Space, rule: TermRule) -> Iterator[tuple[Decoded[ObjectBatch], bytes]]:
    """The objects of JSON Lines, block by block: what is unusable takes 250 times its size."""
    begin, line = 0, 1
    while begin < len(content):
        end = content.find(b"\n", begin + BLOCK) + 1 or len(content)
        block = content[begin:end]
        yield decode_objects(block, line, space, rule), b""
        begin, line = end, line + block.count(b"\n")


def _check_times(objects: _Objects, stream: Stream) -> None:
    """Refuse times that look like another unit than ms, unless the stream's own times look like it too.

    Raises:
        Problem: they look like another unit.
        Unavailable: the stream's clock is not available.
    """
    for name, t in [("", objects.t), *objects.times.items()]:
        if looks_like(t) is None:
            continue
        as_of = stream.as_of()
        problem = looks_unlike(t, time.time_ns() // 1_000_000 if as_of is None else as_of["clock"], name)
        if problem is not None:
            told, field = f"{problem}, or time_unit=ms if they are right", name or "t"
            raise Problem("invalid", f"{field}: {told}", [{"pointer": f"#/{field}", "detail": told}])


def _line(number: int) -> dict[str, Any]:
    return {"line": number}


def _check_limits(objects: _Objects, limits: TimeLimits, clock: int | None, now: int, place: _Place) -> None:
    """Refuse objects that the stream would reject for their time. Its clock goes on, so what is too old stays so.

    Args:
        objects: the objects.
        limits: which times the stream takes.
        clock: the stream's, or an earlier one; None: not known.
        now: the day's clock, ms.
        place: where in the body the record of a number is.

    Raises:
        Problem: there are some; names each with its line.
    """
    t, refused = objects.t, dict[int, str]()
    if limits.retention is not None and clock is not None and np.any(old := t <= (floor := clock - limits.retention)):
        most = f"which is {format_duration(limits.retention)} before the stream's clock"
        refused |= {row: f"t: {too_old(int(t[row]), floor)}, {most}" for row in np.flatnonzero(old).tolist()}
    if limits.ahead is not None and np.any(early := t > now + limits.ahead + _APART):
        most = f"which is {format_duration(limits.ahead)} from now"
        ceiling = now + limits.ahead
        refused |= {row: f"t: {in_the_future(int(t[row]), ceiling)}, {most}" for row in np.flatnonzero(early).tolist()}
    if refused:
        rows = sorted(refused)
        raise _unusable([{"line": int(objects.numbers[row]), "reason": refused[row]} for row in rows], place)


def _unusable(rejected: list[dict[str, Any]], place: _Place, *, whole: bool = True) -> Problem:
    """The problem of records, of all that are rejected or of the first ones."""
    errors = []
    for each in rejected:
        field, _, problem = each["reason"].partition(": ")
        errors.append({**place(each["line"]), "field": field, "detail": problem})
    where = " ".join(map(str, place(rejected[0]["line"]).popitem()))
    first = f"{where}: {rejected[0]['reason']}"
    count = f"{len(rejected)} objects" if whole else f"{len(rejected)} objects or more"
    return Problem("invalid", f"{count} are invalid, and none has been sent; {first}", errors)
