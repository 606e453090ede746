"""What is done for one SpatialQuery: it is registered with its stream, looked after, and cancelled in the end.

What may stand is in the status before it is sent, and leaves the status when it is known to stand no more. So an
operator that dies at any moment goes on from there: it registers once, and leaves nothing behind.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

from spatialstream.model.errors import Unavailable
from spatialstream_operator.cluster import Object
from spatialstream_operator.context import changes, emit
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import condition
from spatialstream_operator.decisions.standing import (
    NO_GATEWAY,
    Registration,
    Wish,
    hindrance,
    news,
    next_registration,
    registrations,
)
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway, Refusal
from spatialstream_operator.loop import Loop
from spatialstream_operator.names import KIND, QUERY_KIND, StreamNames
from spatialstream_operator.steps.removing import SKIP_ANNOTATION

__all__ = ["CONDITION", "QueryController", "remove_query"]

CONDITION = "Registered"

_STEADY = 6
"""Looks at a stream for one at a query of which nothing is to be done."""
_REFUSALS = {400: "Refused", 401: "NotAllowed", 403: "NotAllowed"}
_SETTLED = frozenset({"Registered", "Refused", "Ended"})
_GONE = frozenset({"NoStream", "StreamDeleted", "Ended"})
"""With these nothing stands, whatever was registered."""


class QueryController(Loop):
    """Looks after one SpatialQuery until it is stopped, or the resource is gone."""

    def _begun(self) -> None:
        self._environment.metrics.begin_query(self._namespace, self._name)

    def _count(self, outcome: str, seconds: float) -> None:
        self._environment.metrics.query_reconciles.labels(self._namespace, self._name, outcome).inc()

    async def _look(self) -> float | None:
        body = await self._environment.cluster.get(QUERY_KIND, self._name, self._namespace)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        book = _Book.open(self._environment, body)
        verdict = await _stand(book)
        await book.say(verdict)
        standing = self._environment.metrics.query_registered.labels(self._namespace, self._name)
        standing.set(verdict.status == "True")
        settled = verdict.reason in _SETTLED and len(book.registrations) <= 1
        return self._environment.config.interval * (_STEADY if settled else 1)


async def remove_query(environment: Environment, body: Object) -> bool:
    """Go on with the removal of a SpatialQuery; True when nothing of it stands any more.

    Args:
        environment: what the operator works with.
        body: the resource, which is being deleted.

    Raises:
        ClusterError: the API server does not answer.
    """
    book = _Book.open(environment, body)
    metadata = body["metadata"]
    if (metadata.get("annotations") or {}).get(SKIP_ANNOTATION) != "true":
        stream = await environment.cluster.get(KIND, book.wish.stream, metadata["namespace"])
        # a stream that is gone, or goes, takes what stands in it along
        if stream is not None and not stream["metadata"].get("deletionTimestamp") and book.registrations:
            problem = await _cancelled(book)
            if problem or book.registrations:
                await book.say(Verdict("Unknown", "Cancelling", problem or "It is being cancelled."))
                return False
    environment.metrics.end_query(metadata["namespace"], metadata["name"])
    return True


async def _cancelled(book: _Book) -> str:
    """Cancel all that may stand; why that cannot go on, "" if it can."""
    if book.environment.gateway is None:
        return NO_GATEWAY
    try:
        for each in book.registrations:
            await _cancel(book, book.environment.gateway, each)
    except Unavailable as error:
        return str(error)
    except Refusal as refusal:
        return refusal.detail
    return ""


@dataclass(slots=True)
class _Book:
    """One look at a SpatialQuery.

    Attributes:
        environment: what the operator works with.
        body: the resource.
        status: its status, with what has been remembered so far.
        wish: what it asks for.
        registrations: what may stand because of it.
        found: what it asks for as it stands, and the rows that it has had; None: that is not known.
    """

    environment: Environment
    body: Object
    status: Object
    wish: Wish
    registrations: list[Registration] = field(default_factory=list)
    found: Object | None = None

    @classmethod
    def open(cls, environment: Environment, body: Object) -> _Book:
        metadata, status = body["metadata"], copy.deepcopy(body.get("status") or {})
        wish = Wish.of(metadata["namespace"], metadata["name"], body["spec"])
        return cls(environment, body, status, wish, registrations(status))

    @property
    def stream(self) -> str:
        """The stream's own name."""
        return StreamNames(self.body["metadata"]["namespace"], self.wish.stream).stream

    @property
    def current(self) -> Registration | None:
        """The registration of what is wished for now."""
        return next((each for each in self.registrations if each.query == self.wish.id), None)

    @property
    def stood(self) -> bool:
        """Whether what is wished for was taken in, as far as is known."""
        return self.current is not None and self.current.taken

    async def keep(self, query: str, registration: Registration | None, **more: Any) -> None:
        """Write down what has become of the registration of a query; None: it stands no more."""
        others = [each for each in self.registrations if each.query != query]
        self.registrations = others if registration is None else [*others, registration]
        await self.remember(registrations=[each.to_status() for each in self.registrations], **more)

    async def say(self, verdict: Verdict) -> None:
        """Write the condition, and make an event if it is news."""
        metadata, before = self.body["metadata"], list(self.status.get("conditions") or [])
        known: Object = next((each for each in before if each.get("type") == CONDITION), {})
        after = condition(CONDITION, verdict, self.environment.now(), int(metadata.get("generation", 0)), known)
        # the last that was taken in: while a new one is refused, the old one stands
        taken = [each for each in self.registrations if each.taken and verdict.reason not in _GONE]
        standing = taken[-1] if taken else None
        await self.remember(
            observedGeneration=after["observedGeneration"],
            query=None if standing is None else standing.query,
            since=None if standing is None else records.moment_text(standing.t),
            conditions=[after],
            **self._shown(standing),
        )
        if (note := news(before, after)) is not None:
            await emit(self.environment, self.body, note)

    def _shown(self, standing: Registration | None) -> Object:
        """What the stream says of a query that stands: what is known of it stays while the stream does not say."""
        by, rows, last = None, None, None
        if standing is not None and standing.query == self.wish.id and self.found is not None:
            by, had = self.found["query"].get("by"), self.found["so_far"]
            rows, last = had["rows"], records.moment_text(had["last_row"])
        elif standing is not None and standing.query == records.text(self.status, "query"):
            return {}
        return {"by": by, "rows": rows, "lastRow": last}

    async def remember(self, **parts: Any) -> None:
        """Write parts of the status, if they say anything new."""
        metadata = self.body["metadata"]
        change, after = changes(self.status, parts)
        if change:
            await self.environment.cluster.patch_status(QUERY_KIND, metadata["name"], metadata["namespace"], change)
            self.status = after


async def _stand(book: _Book) -> Verdict:
    """Have stand what the resource says, and nothing else of it; what is to be said."""
    gateway, wish = book.environment.gateway, book.wish
    stream = await book.environment.cluster.get(KIND, wish.stream, book.body["metadata"]["namespace"])
    hindered = hindrance(wish.stream, stream, gateway is not None, book.stood)
    if hindered is not None:
        return hindered
    assert stream is not None  # nor has it no gateway: either would be a hindrance
    assert gateway is not None
    try:
        verdict = await _registered(book, gateway, stream["metadata"]["uid"])
        if verdict.reason != "Waiting":  # until the new one stands the old one does
            for each in [each for each in book.registrations if each.query != wish.id]:
                await _cancel(book, gateway, each)
    except Unavailable as error:
        return Verdict("Unknown" if book.stood else "False", "Unavailable", f"{str(error).rstrip('.')}.")
    except Refusal as refusal:
        reason = _REFUSALS.get(refusal.status, "Refused")
        old = next((each.query for each in book.registrations if each.taken and each.query != wish.id), None)
        rest = "" if old is None else f"; {old}, which it was before, still stands"
        return Verdict("Unknown" if book.stood else "False", reason, f"{refusal.detail.rstrip('.')}{rest}.")
    return verdict


async def _registered(book: _Book, gateway: Gateway, uid: str) -> Verdict:
    """See that the query stands, or why it does not yet."""
    wish, known = book.wish, book.current
    found = await gateway.find(book.stream, wish.id)
    if found is None:
        clock = await gateway.clock(book.stream)
        clock = book.environment.now() if clock is None else clock
        same = records.text(book.status, "streamUid") == uid
        wanted = next_registration(wish, known, clock, same)
        if wanted is None:
            return Verdict("False", "Ended", f"Its time is over: it stood as {wish.id}, for as long as it says.")
        await book.keep(wish.id, wanted, streamUid=uid)  # before it is sent
        try:
            taken = await gateway.register(book.stream, {**wish.record, "t": wanted.t, "by": wish.by})
        except Refusal as refusal:
            if refusal.status != 409:
                if wanted is not known:  # an earlier attempt may have been sent, and still be taken in
                    await book.keep(wish.id, None)
                raise
            return Verdict("False", "Waiting", f"{refusal.detail.rstrip('.')}.")  # the next look finds it
        if not taken:
            return Verdict("False", "Waiting", "It is sent, and the stream has not come to it yet.")
        found = {"query": {"t": wanted.t}, "so_far": {"rows": None, "last_row": None}}
    book.found = found
    await book.keep(wish.id, Registration(wish.id, int(found["query"]["t"]), taken=True), streamUid=uid)
    return Verdict("True", "Registered", f"It stands as {wish.id}.")


async def _cancel(book: _Book, gateway: Gateway, registration: Registration) -> None:
    """See that a query stands no more; what was sent and perhaps not taken in is cancelled without a look."""
    unseen = registration.taken and await gateway.find(book.stream, registration.query) is None
    if unseen or await gateway.cancel(book.stream, registration.query):
        await book.keep(registration.query, None)
    else:  # the broker has it, behind the registration: from now on it is enough to look
        await book.keep(registration.query, replace(registration, taken=True))
