"""Authentication and authorization by a Kubernetes cluster, through TokenReview and SubjectAccessReview.

A right is a verb (``ask``, ``watch``, ``write``) on ``spatialstreams`` of the group ``spatialstream.dev``, in the
namespace of the stream: ``geo.quakes`` is the SpatialStream ``quakes`` of the namespace ``geo``. So rights are granted
by the cluster's roles, and tokens are those of its accounts.

The cluster's answers are cached for some seconds (:class:`ReviewLimits`): a revoked right stays valid that
long, but without the cache each request would cause two more to the API server. The size of the cache and the number of
concurrent reviews are bounded, with a share for each client, since every wrong token causes a review.
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
from typing import Any, Generic, TypeVar

from spatialstream.gateway.api_server import ApiServer
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import Shares
from spatialstream.gateway.threads import CLIENT

__all__ = ["RIGHTS", "ReviewLimits", "Reviewed", "Reviews"]

RIGHTS = ("ask", "watch", "write")
"""Rights: snapshot queries; following results; registering and cancelling queries and sending objects."""

T = TypeVar("T")

_LONGEST_TOKEN = 16 << 10
_SUBJECT = ("uid", "groups", "extra")
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """How long and how many answers of the cluster are cached, and how many are asked for at a time.

    Attributes:
        keep: seconds for which a positive answer is cached.
        keep_refusal: seconds for which a negative one is.
        most_kept: most answers that are cached, of callers and of rights each.
        most_asked: most reviews under way, of callers and of rights each.
    """

    keep: float = 10.0
    keep_refusal: float = 2.0
    most_kept: int = 4096
    most_asked: int = 64


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The caller of a request, as identified by the cluster.

    Attributes:
        name: name for the log, such as ``system:serviceaccount:geo:dashboard``.
        subject: user, groups and extra fields, as JSON in the form of a SubjectAccessReview.
        reviews: asks the cluster for rights.
    """

    name: str
    subject: str = field(repr=False)
    reviews: Reviews = field(repr=False, compare=False)

    async def check(self, right: str, stream: str) -> None:
        """Check that the cluster grants a right on a stream.

        Raises:
            Problem: it does not.
            Unavailable: it does not answer.
        """
        namespace, dot, name = stream.partition(".")
        if not (namespace and dot and name):
            raise Problem("not-found", f"{stream} is not of the form NAMESPACE.NAME of a cluster's streams")
        if not await self.reviews.allows(self.subject, right, stream):
            raise Problem(
                "forbidden", f"{self.name} may not {right} spatialstreams/{name} in the namespace {namespace}"
            )

    async def rights_on(self, stream: str) -> frozenset[str]:
        """Return the rights that the cluster grants on a stream; errors as in :meth:`check`."""
        allowed = await asyncio.gather(*(self.reviews.allows(self.subject, right, stream) for right in RIGHTS))
        return frozenset(right for right, may in zip(RIGHTS, allowed, strict=True) if may)


class Reviews:
    """Asks the cluster for reviews; for one event loop.

    Args:
        cluster: the API server.
        audiences: accepted audiences of tokens; empty: those of the API server.
        clock: returns the time in seconds.
        api_server: whether audiences of the API server are accepted too.
        limits: of the cache.
    """

    def __init__(
        self,
        cluster: ApiServer,
        audiences: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        *,
        api_server: bool = False,
        limits: ReviewLimits | None = None,
    ) -> None:
        limits = limits or ReviewLimits()
        self._cluster, self._audiences, self._api_server = cluster, list(audiences), api_server
        self._callers, self._rights = _Kept[Reviewed | None](clock, limits), _Kept[bool](clock, limits)

    @property
    def known(self) -> int:
        """The number of tokens whose answers are cached."""
        return len(self._callers)

    async def caller(self, token: str) -> Reviewed | None:
        """Return the caller that a token identifies; None: the token is invalid.

        Raises:
            Unavailable: the cluster does not answer.
            Problem: too many reviews are under way.
        """
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            return None
        return await self._callers.get(hashlib.sha256(token.encode()).digest(), lambda: self._review(token))

    async def allows(self, subject: str, right: str, stream: str) -> bool:
        """Whether a subject has a right on a stream; errors as in :meth:`caller`."""
        return await self._rights.get((subject, right, stream), lambda: self._review_access(subject, right, stream))

    async def _review(self, token: str) -> Reviewed | None:
        # only the API server knows its own audiences: a token that names none of ours is reviewed without audiences
        audiences = [] if self._api_server and not _named(token) & set(self._audiences) else self._audiences
        spec = {"token": token} | ({"audiences": audiences} if audiences else {})
        status = await self._asked(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec)
        # a cluster that does not support audiences returns none
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
    """The audiences that a token claims, unverified. They decide only which review is requested."""
    try:
        part = token.split(".")[1]
        named = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["aud"]
    except (LookupError, TypeError, ValueError, RecursionError):  # not a JSON Web Token
        return set()
    return {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}


@dataclass(slots=True)
class _Answer(Generic[T]):
    task: asyncio.Task[T]
    until: float = float("inf")


class _Kept(Generic[T]):
    """A cache of answers. Concurrent requests for the same key are made once; failures are not cached."""

    def __init__(self, clock: Callable[[], float], limits: ReviewLimits) -> None:
        self._clock, self._limits = clock, limits
        self._answers = OrderedDict[Hashable, _Answer[T]]()
        self._under_way = Shares(limits.most_asked, "reviews of rights under way")

    def __len__(self) -> int:
        return len(self._answers)

    async def get(self, query: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        cached = self._answers.get(query)
        if cached is None or self._clock() >= cached.until:
            client = CLIENT.get()
            self._under_way.take(client, kind="try-again")
            cached = self._answers[query] = _Answer(asyncio.ensure_future(self._asked(query, ask, client)))
            self._answers.move_to_end(query)
            while len(self._answers) > self._limits.most_kept:
                self._answers.popitem(last=False)
        return await asyncio.shield(cached.task)  # others may wait for the same

    async def _asked(self, query: Hashable, ask: Callable[[], Awaitable[T]], client: str) -> T:
        seconds = 0.0
        try:
            answer = await ask()
            seconds = self._limits.keep if answer else self._limits.keep_refusal
            return answer
        finally:
            self._under_way.give(client)
            known = self._answers.get(query)
            if known is not None and known.task is asyncio.current_task():
                known.until = self._clock() + seconds
