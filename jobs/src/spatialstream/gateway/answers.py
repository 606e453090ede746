"""Large answers: what they take of the process's memory, which clients share, and how they are sent.

A request holds its *room* from when its body comes until its answer is sent: the rows are counted as they come
(:class:`~spatialstream.model.answer_bounds.AnswerBounds`), so that what is too large, or too much beside what others
hold, is given up then. An answer is sent in pieces, and what is sent is let go of.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spatialstream.gateway.geojson import features
from spatialstream.gateway.problems import Problem, of_error
from spatialstream.gateway.rates import Shares
from spatialstream.model.answer_bounds import AnswerBounds
from spatialstream.model.errors import TooLarge

__all__ = ["PARSED", "AnswerRooms", "Lines", "Pieces", "Room", "as_collection", "as_json"]

PARSED = 8
"""Bytes that a byte of JSON takes when it is parsed, about."""

_PIECE = 64 << 10


class Room:
    """The memory that a request has, from when it comes until it is done with; for any thread.

    Args:
        shares: of which.
        client: whose request it is.
        largest: bytes of its answer, at most.
        most: bytes that a request can ever have.
    """

    def __init__(self, shares: Shares, client: str, largest: int, most: int) -> None:
        self._shares, self._client, self._most = shares, client, most
        self._lock, self._held, self._over = threading.Lock(), 0, False
        self.largest = largest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.give()

    @property
    def bounds(self) -> AnswerBounds:
        """Of its answer, which it holds."""
        return AnswerBounds(self.largest, self.hold)

    def hold(self, more: int) -> None:
        """Have so much more, or, below 0, so much less.

        Raises:
            Problem: there is none, or it is done with.
        """
        with self._lock:
            more = max(more, -self._held)
            if self._over:
                if more > 0:
                    raise Problem("try-again", "the client has disconnected", retry=1)
                return
            if more > 0:
                if self._held + more > self._most:
                    told = f"the answer would take more than the {self._most} bytes of memory that a request can have"
                    raise of_error(TooLarge(told))
                self._shares.take(self._client, more, "no-memory")
            else:
                self._shares.give(self._client, -more)
            self._held += more

    def another(self, client: str) -> Room:
        """One more, of another client."""
        return Room(self._shares, client, self.largest, self._most)

    def give(self) -> None:
        """End the answer: a thread that still works on it fails when it asks for more memory."""
        with self._lock:
            self._over = True
            self._shares.give(self._client, self._held)
            self._held = 0


class AnswerRooms:
    """Memory of a process for requests and their answers, which clients share.

    Args:
        memory: bytes in all.
        largest: bytes of an answer, at most.
    """

    def __init__(self, memory: int, largest: int) -> None:
        self._shares, self._largest, self._most = Shares(memory, "bytes of memory"), largest, memory // 2

    @property
    def taken(self) -> int:
        """Bytes that are held."""
        return self._shares.taken

    def room(self, client: str) -> Room:
        """For a request of a client."""
        return Room(self._shares, client, self._largest, self._most)


class Lines:
    """Rows that are let go of as they are taken.

    Args:
        lines: of JSON.
        room: that holds them.
    """

    def __init__(self, lines: Iterable[bytes], room: Room) -> None:
        self._lines, self._room = deque(lines), room

    def __len__(self) -> int:
        return len(self._lines)

    def hold_text(self) -> None:
        """Have room for one of them at a time as text; errors as in :meth:`Room.hold`."""
        self._room.hold(max((len(each) * (1 if each.isascii() else 4) for each in self._lines), default=0))

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(map(len, self._lines))

    def __iter__(self) -> Iterator[bytes]:
        while self._lines:
            line = self._lines.popleft()
            size = len(line)
            yield line
            del line
            self._room.hold(-size)


def as_json(lines: Lines, *, many: bool) -> tuple[Iterator[bytes], int]:
    """Rows as a JSON list, or one as it is; and its length in bytes."""
    count, size = len(lines), lines.size

    def pieces() -> Iterator[bytes]:
        if many:
            yield b"["
        for number, line in enumerate(lines):
            if number:
                yield b", "
            yield line
        if many:
            yield b"]"

    return pieces(), size + (2 * max(0, count - 1) + 2 if many else 0)


def as_collection(lines: Lines) -> Iterator[bytes]:
    """The objects of rows as one GeoJSON collection, made object by object."""
    members, first = dict[str, Any](), True
    yield b'{"type": "FeatureCollection", "features": ['
    for line in lines:
        for feature in features(line.decode(), members):
            text = json.dumps(feature, ensure_ascii=False).encode(errors="replace")
            yield text if first else b", " + text
            first = False
    rest = json.dumps(members, ensure_ascii=False).encode(errors="replace")
    yield b"]" + (b", " + rest[1:] if members else b"}")


class Pieces(Response):
    """An answer that is made and sent piece by piece.

    Args:
        pieces: of its content; they are gathered, or cut, to some that are neither small nor large.
        form: media type.
        held: is closed when it has been sent, or nobody takes it.
        size: bytes of the content; None: that is not known.
        headers: more of the response.
    """

    def __init__(
        self,
        pieces: Iterable[bytes],
        form: str,
        held: ExitStack,
        size: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(media_type=form, headers=headers)
        del self.headers["content-length"]
        if size is not None:
            self.headers["content-length"] = str(size)
        self._pieces, self._held = pieces, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        with self._held:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in _of_size(self._pieces):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # where all is taken at once sending waits for nothing, and others have waited
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _of_size(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting, size = list[bytes](), 0
    for piece in pieces:
        if size + len(piece) > _PIECE and waiting:
            yield b"".join(waiting)
            waiting, size = [], 0
        if len(piece) > _PIECE:
            view = memoryview(piece)
            yield from (bytes(view[first : first + _PIECE]) for first in range(0, len(view), _PIECE))
        else:
            waiting.append(piece)
            size += len(piece)
    if waiting:
        yield b"".join(waiting)
