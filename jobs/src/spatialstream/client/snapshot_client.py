"""Snapshot queries to a running stream, answered between its rounds as of the newest one.

These queries do not go through the stream: they go directly to the slots that they concern, which answer from views of
their objects (:mod:`spatialstream.stages.views`). All answers of a call are as of one round, and name it. The functions
that reach the stream's driver and its slots are passed in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, overload

from spatialstream.client.answer import Answer
from spatialstream.client.query_session import checked_query
from spatialstream.model.answer_bounds import UNBOUNDED, AnswerBounds, Counted
from spatialstream.model.errors import RecordError, Replaced, SettingError, Suspended, Unavailable
from spatialstream.model.queries import Query, QueryBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import check_time, parse_time
from spatialstream.stages.snapshot_queries import Call, ReadPoint, lines_of

__all__ = ["SnapshotClient"]

MOST = 1_000
"""Most queries answered together. A longer list is split, and each part is answered as of the newest round then."""

FEW = 128
"""Most queries for one actor to answer completely; the work of more is shared by the actors and the client."""

Whole = Callable[
    [Sequence[tuple[Query, Mapping[str, Any]]], float, int | None], tuple[dict[str, int], list[bytes]] | None
]
"""Has one actor answer queries completely, see :meth:`~spatialstream.actors.query_endpoint.QueryClient.ask`."""

_MOST_WHOLE = 1 << 20
"""Bytes of rows that come all at once, at most, where they are counted; what has more comes as it is found."""

_PAUSES = (0.002, 0.1)
"""Seconds between two polls of the newest round: the first, and the longest."""


class SnapshotClient:
    """Has SRQs, SKQs and STQs answered. Safe for several threads if the functions passed in are.

    Args:
        newest: the stream's newest round; None: it has done none yet. Errors of its own are Unavailable. It is given
            the seconds within which it has to be done.
        call: asks slots. Errors of its own are Unavailable; Gone if a slot does not have that round.
        space: of the stream.
        rule: of the stream's terms.
        pause: waits for so many seconds.
        whole: has few queries answered at the newest round's clock, within so many seconds, in rows of so many bytes
            together: ``as_of`` and rows; None: they have to be asked otherwise.
        longest: bytes of a row; of a longer one there is only the reason why it is not given; None: of any length.

    Attributes:
        space, rule: as passed in.
    """

    def __init__(
        self,
        newest: Callable[[float], ReadPoint | None],
        call: Call,
        space: Space = WGS84,
        rule: TermRule = DEFAULT_RULE,
        pause: Callable[[float], object] = time.sleep,
        whole: Whole = lambda query_block, seconds, most: None,
        longest: int | None = None,
    ) -> None:
        self._newest, self._call, self._whole, self._longest = newest, call, whole, longest
        self.space, self.rule, self._pause = space, rule, pause

    def as_of(self, timeout: float = 10.0) -> dict[str, int] | None:
        """Return the round and the clock as of which a query would be answered now; None before the clock has started.

        Args:
            timeout: seconds to wait for the stream.

        Raises:
            Unavailable: it does not answer in time.
        """
        read_point = self._newest(timeout)
        return _as_of(read_point) if read_point is not None and read_point.begun else None

    def read_point(self, timeout: float = 10.0) -> ReadPoint:
        """Return the read point of the stream's newest round.

        Args:
            timeout: seconds to wait for the stream.

        Raises:
            Unavailable: it does not answer in time, or has not completed a round yet.
        """
        read_point = self._newest(timeout)
        if read_point is None:
            raise Unavailable("the stream has just started: it has not completed a round yet")
        return read_point

    @overload
    def ask(
        self, query: Mapping[str, Any], *, at_least: int | str | None = None, timeout: float = 10.0, sure: bool = False
    ) -> Answer: ...

    @overload
    def ask(
        self,
        query: Iterable[Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> list[Answer]: ...

    def ask(
        self,
        query: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> Answer | list[Answer]:
        """Return the answer to a query, or the answers to several, in their order.

        An answer is the row that the stream gives for the query, which a notebook displays on a map, with ``as_of``,
        such as ``{"round": 17, "clock": 1000}``: all objects with timestamps up to ``clock`` have been considered.

        Args:
            query: the fields of a snapshot query. Without ``t`` its time is the clock; with a ``t`` in the past it
                considers the objects up to then. Without ``id`` it gets one.
            at_least: ms or ISO 8601: wait until the clock has reached this time.
            timeout: seconds for the answers to arrive, including the wait for ``at_least``, and retries if the stream
                cannot be reached or proceeds to another round meanwhile. At least one try of a second is made.
            sure: accept numeric times as ms even if they look like another unit.

        Raises:
            SettingError: a query is not a snapshot query of this stream, or its time is later than the clock or looks
                like another unit than ms; names the query, and says what would be right.
            Unavailable: there is no answer in time; a later try may succeed.
            Suspended: nobody answers, for the stream is at rest; that is said as soon as it is known.
            Replaced: the stream has been replaced by another one of its name.
        """
        if isinstance(query, Mapping):
            (line,) = self.lines([("query", query)], at_least, timeout, sure=sure)
            return Answer(json.loads(line), query, self.space)
        asked = list(query)
        named = ((f"query {number}", each) for number, each in enumerate(asked))
        lines = self.lines(named, at_least, timeout, sure=sure)
        return [Answer(json.loads(line), each, self.space) for line, each in zip(lines, asked, strict=True)]

    def lines(
        self,
        records: Iterable[tuple[str, object]],
        at_least: int | str | None = None,
        timeout: float = 10.0,
        bounds: AnswerBounds = UNBOUNDED,
        *,
        sure: bool = False,
    ) -> Iterator[str]:
        """Yield the answers as lines of JSON, in the order of the queries.

        Args:
            records: the name of each query's origin, for error messages, and the query.
            at_least: see :meth:`ask`.
            timeout: see :meth:`ask`. All errors are raised before the first line, except Unavailable with more than a
                thousand queries.
            bounds: what the answers may take. What they take is held for whoever gets the lines.
            sure: see :meth:`ask`.

        Raises:
            TooLarge: they would take more.
        """
        asked = [replace(each, sure=sure) for each in self._all_checked(records)]
        try:
            earliest = None if at_least is None else parse_time(at_least)
        except RecordError as error:
            raise SettingError("at_least", error.problem) from None
        for first in range(0, len(asked), MOST):
            (found,) = self._answers([(asked[first : first + MOST], timeout)], earliest, bounds)
            if isinstance(found, SettingError | Unavailable):
                raise found
            yield from (line.decode() for line in found)

    def together(
        self,
        requests: Iterable[tuple[Iterable[tuple[str, object]], float]],
        at_least: int | None = None,
        bounds: AnswerBounds = UNBOUNDED,
    ) -> list[list[bytes] | SettingError | Unavailable]:
        """Answer several requests as of one round: each gets its lines as from :meth:`lines`, or its error.

        An error of one request does not affect the others. Only one try is made: the caller can wait for a time, or
        retry what is Unavailable, without holding a thread.

        Args:
            requests: the queries of each request, and its timeout; at most :data:`MOST` queries in all.
            at_least: ms: no answer before the clock has reached this time; None: at once.
            bounds: what all answers together may take, see :meth:`lines`.

        Raises:
            TooLarge: they would take more; the answers of one of them may not.
            Replaced: the stream has been replaced by another one of its name.
        """
        checked = list[tuple[list[_Asked] | SettingError, float]]()
        for records, timeout in requests:
            try:
                checked.append((self._all_checked(records), timeout))
            except SettingError as error:
                checked.append((error, timeout))
        return self._answers(checked, at_least, bounds, once=True)

    def _all_checked(self, records: Iterable[tuple[str, object]]) -> list[_Asked]:
        return [self._checked(place, record) for place, record in records]

    def _checked(self, place: str, given: object) -> _Asked:
        record, query = checked_query(place, given, self.space, self.rule)
        if not isinstance(query, Query) or query.lifetime.continuous:
            raise SettingError(
                place, f"type: {record['type']} is not a snapshot query (SRQ, SKQ or STQ); send it through the stream"
            )
        return _Asked(place, query, record)

    def _answers(
        self,
        requests: Sequence[tuple[list[_Asked] | SettingError, float]],
        earliest: int | None,
        bounds: AnswerBounds,
        *,
        once: bool = False,
    ) -> list[list[bytes] | SettingError | Unavailable]:
        """Answer several requests as of the newest round; if it is superseded meanwhile, as of the newest then."""
        began, pause = time.monotonic(), _PAUSES[0]
        found: dict[int, list[bytes] | SettingError | Unavailable] = {}
        left: dict[int, list[_Asked]] = {}
        for number, (asked, _) in enumerate(requests):
            if isinstance(asked, SettingError):
                found[number] = asked
            else:
                left[number] = asked
        if earliest is None and left:
            some = [each for asked in left.values() for each in asked]
            whole = self._answered_whole(some, min(requests[number][1] for number in left), bounds)
            if whole is not None:
                rows = iter(whole)
                found |= {number: list(islice(rows, len(asked))) for number, asked in left.items()}
                left = {}
        while left:
            until = began + min(requests[number][1] for number in left)
            try:
                read_point = self._newest(_left(until))
                if read_point is None or not read_point.begun:
                    raise Unavailable("the stream has just started: its clock has no time yet, so it answers nothing")
                if earliest is not None and read_point.clock < earliest:
                    raise Unavailable(f"the stream's clock has not reached {earliest}: it is at {read_point.clock}")
                for number in list(left):
                    if (wrong := _wrong_time(left[number], read_point.clock)) is not None:
                        found[number] = wrong
                        del left[number]
                asked_now = [each for asked in left.values() for each in asked]
                lines = iter(self._answered(asked_now, read_point, until, bounds))
                found |= {number: list(islice(lines, len(asked))) for number, asked in left.items()}
                break
            except Replaced:
                raise  # no later try can succeed
            except Suspended as error:  # nor is one likely to
                found |= dict.fromkeys(left, error)
                left = {}
            except Unavailable as error:
                for number in list(left):
                    timeout = requests[number][1]
                    if once or time.monotonic() + pause > began + timeout:
                        found[number] = error if once else Unavailable(f"{error}; waited {timeout:g} s")
                        del left[number]
            if left:
                self._pause(pause)
                pause = min(2 * pause, _PAUSES[1])
        return [found[number] for number in range(len(requests))]

    def _answered_whole(self, asked: Sequence[_Asked], timeout: float, bounds: AnswerBounds) -> list[bytes] | None:
        """The answers of one actor; None if there are none."""
        if not 0 < len(asked) <= FEW or any(each.timed for each in asked):
            return None
        most = None if bounds is UNBOUNDED else _MOST_WHOLE
        query_block = [(each.query, each.record) for each in asked]
        found = self._whole(query_block, max(1.0, timeout / 2), most)  # leaves time for more
        if found is None:
            return None
        as_of, lines = found
        counted, kept = Counted(bounds), False
        try:
            counted.made(sum(map(len, lines)))
            kept = True
        finally:
            counted.end(kept=kept)
        return _with(as_of, lines)

    def _answered(self, asked: list[_Asked], read_point: ReadPoint, until: float, bounds: AnswerBounds) -> list[bytes]:
        if not asked:
            return []
        queries = [each.query if each.timed else replace(each.query, t=read_point.clock) for each in asked]
        given = QueryBatch.of(queries), read_point, self.space, self._call
        return _with(_as_of(read_point), lines_of(*given, lambda: _left(until), self._longest, bounds))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query.

    Attributes:
        place: name of its origin, for error messages.
        query: the parsed query.
        record: its record.
        sure: whether its time is in ms, whatever it looks like.
    """

    place: str
    query: Query
    record: Mapping[str, Any]
    sure: bool = False

    @property
    def timed(self) -> bool:
        """Whether the record has a time."""
        return "t" in self.record


def _with(as_of: Mapping[str, int], lines: list[bytes]) -> list[bytes]:
    """Rows that say what they are as of: the same list, so that there are not two of each."""
    end = f', "as_of": {json.dumps(as_of)}}}'.encode()
    for i, line in enumerate(lines):
        lines[i] = line[:-1] + end
    return lines


def _wrong_time(asked: Iterable[_Asked], clock: int) -> SettingError | None:
    """What is wrong with queries of which one is about a time that cannot be meant, or not be answered yet."""
    for each in asked:
        if each.timed and not each.sure:
            try:
                check_time(each.record["t"], clock)
            except RecordError as error:
                return SettingError(each.place, str(error))
        if each.timed and each.query.t > clock:
            right = f"leave t out, or wait with at_least={each.query.t}"
            problem = f"t: {each.query.t} is later than the stream's clock, which is at {clock}; {right}"
            return SettingError(each.place, problem)
    return None


def _as_of(read_point: ReadPoint) -> dict[str, int]:
    return {"round": read_point.round[0], "clock": read_point.clock}


def _left(until: float) -> float:
    """Seconds until then, but at least one, so that every try has a chance."""
    return max(1.0, until - time.monotonic())
