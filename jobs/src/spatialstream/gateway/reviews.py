"""Who may do what, as a Kubernetes cluster says: TokenReview tells whose a token is, SubjectAccessReview what is his.

A right is a verb (``ask``, ``watch``, ``write``) on ``spatialstreams`` of the group ``spatialstream.dev``, in the
namespace of the stream: ``geo.quakes`` is the SpatialStream ``quakes`` of the namespace ``geo``. So who may do what is
in the cluster's roles, and tokens are those of its accounts.

What the cluster has said counts for some seconds (:data:`KEEP`, :data:`KEEP_REFUSAL`): so long may somebody go on who
has lost a right, and a request is otherwise two more to the API server. What is kept is bounded, and so is what is
asked at a time, with a share for each client, for whoever sends a wrong token makes the gateway ask.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import Shares
from spatialstream.gateway.threads import CLIENT

if TYPE_CHECKING:
    from spatialstream.gateway.cluster import Cluster

__all__ = ["KEEP", "KEEP_REFUSAL", "RIGHTS", "Reviewed", "Reviews"]

RIGHTS = ("ask", "watch", "write")
"""To ask snapshot queries; to follow results; to register and cancel queries and send objects."""

T = TypeVar("T")

KEEP, KEEP_REFUSAL = 10.0, 2.0
"""Seconds for which it counts that the cluster knows a token, or allows something; and that it does not."""

_MOST_KEPT = 4096
_MOST_ASKED = 64
_LONGEST_TOKEN = 16 << 10
_SUBJECT = ("uid", "groups", "extra")
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Who a request comes from, as the cluster knows him.

    Attributes:
        name: for the log, such as ``system:serviceaccount:geo:dashboard``.
        subject: what the cluster says of him, as JSON in the form that it is asked in.
    """

    name: str
    subject: str = field(repr=False)
    reviews: Reviews = field(repr=False, compare=False)

    async def check(self, right: str, stream: str) -> None:
        """Refuse what the cluster does not allow.

        Raises:
            Problem: it does not.
            Unavailable: it does not say.
        """
        namespace, dot, name = stream.partition(".")
        if not (namespace and dot and name):
            raise Problem("not-found", f"{stream} is not NAMESPACE.NAME, as streams of a cluster are called")
        if not await self.reviews.allows(self.subject, right, stream):
            raise Problem(
                "forbidden", f"{self.name} may not {right} spatialstreams/{name} in the namespace {namespace}"
            )

    async def rights_on(self, stream: str) -> frozenset[str]:
        """What the cluster allows with a stream; errors as in :meth:`check`."""
        allowed = await asyncio.gather(*(self.reviews.allows(self.subject, right, stream) for right in RIGHTS))
        return frozenset(right for right, may in zip(RIGHTS, allowed, strict=True) if may)


class Reviews:
    """Asks the cluster, of one event loop.

    Args:
        cluster: the API server.
        audiences: of which tokens have to be one; none: those of the API server.
        clock: seconds.
        api_server: whether those of the API server will do too.
    """

    def __init__(
        self,
        cluster: Cluster,
        audiences: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        *,
        api_server: bool = False,
    ) -> None:
        self._cluster, self._audiences, self._api_server = cluster, list(audiences), api_server
        self._callers, self._rights = _Kept[Reviewed | None](clock), _Kept[bool](clock)

    async def caller(self, token: str) -> Reviewed | None:
        """Whose a token is; None: nobody's.

        Raises:
            Unavailable: the cluster does not say.
            Problem: too much is being asked.
        """
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            return None
        return await self._callers.get(hashlib.sha256(token.encode()).digest(), lambda: self._review(token))

    async def allows(self, subject: str, right: str, stream: str) -> bool:
        """Whether somebody has a right on a stream; errors as in :meth:`caller`."""
        return await self._rights.get((subject, right, stream), lambda: self._review_access(subject, right, stream))

    async def _review(self, token: str) -> Reviewed | None:
        # only the API server knows its own audiences: it takes a token that names none of these to be for one of them
        audiences = [] if self._api_server and not _named(token) & set(self._audiences) else self._audiences
        spec = {"token": token} | ({"audiences": audiences} if audiences else {})
        status = await self._asked(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec)
        # a cluster that knows nothing of audiences names none
        meant = not audiences or set(audiences) & set(status.get("audiences") or [])
        if not status.get("authenticated") or not meant:
            return None
        user = status["user"]
        subject = {"user": user["username"]} | {name: user[name] for name in _SUBJECT if user.get(name)}
        return Reviewed(user["username"], json.dumps(subject, sort_keys=True), self)

    async def _review_access(self, subject: str, right: str, stream: str) -> bool:
        namespace, _, name = stream.partition(".")
        about = {"group": "spatialstream.dev", "resource": "spatialstreams", "verb": right}
        spec = json.loads(subject) | {"resourceAttributes": about | {"namespace": namespace, "name": name}}
        status = await self._asked(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return bool(status.get("allowed"))

    async def _asked(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._cluster.post(path, {"apiVersion": version, "kind": kind, "spec": spec})
        return dict(answer["status"])


def _named(token: str) -> set[str]:
    """The audiences that a token says it is for. That decides what is asked about it, and not what it is good for."""
    try:
        part = token.split(".")[1]
        named = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["aud"]
    except (LookupError, TypeError, ValueError, RecursionError):  # it is of another kind
        return set()
    return {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}


@dataclass(slots=True)
class _Answer(Generic[T]):
    task: asyncio.Task[T]
    until: float = float("inf")


class _Kept(Generic[T]):
    """Answers by query. What several want to know at a time is asked once; what has failed is asked anew."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers = OrderedDict[Hashable, _Answer[T]]()
        self._under_way = Shares(_MOST_ASKED, "queries about rights under way")

    async def get(self, query: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        known = self._answers.get(query)
        if known is None or self._clock() >= known.until:
            client = CLIENT.get()
            self._under_way.take(client, kind="try-again")
            known = self._answers[query] = _Answer(asyncio.ensure_future(self._asked(query, ask, client)))
            self._answers.move_to_end(query)
            while len(self._answers) > _MOST_KEPT:
                self._answers.popitem(last=False)
        return await asyncio.shield(known.task)  # others may wait for the same

    async def _asked(self, query: Hashable, ask: Callable[[], Awaitable[T]], client: str) -> T:
        seconds = 0.0
        try:
            answer = await ask()
            seconds = KEEP if answer else KEEP_REFUSAL
            return answer
        finally:
            self._under_way.give(client)
            known = self._answers.get(query)
            if known is not None and known.task is asyncio.current_task():
                known.until = self._clock() + seconds
