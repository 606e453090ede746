"""JSON documents as a stream of records: the elements of an array, or the features of a GeoJSON FeatureCollection.

A document is read piece by piece, so memory is that of its longest element. Cost: that of the standard library's
decoder, about 10 µs an element of some hundred bytes.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["json_document"]

_PIECE = 1 << 20
_LONGEST = 64 << 20
"""Most characters of one value."""
_SPACES = " \t\r\n"
_CUT = 16
"""A decoder that ends so few characters before the end of a piece may have ended for want of more."""


class _Text:
    """A JSON text that is read piece by piece.

    Bytes that are not UTF-8 stay apart as halves of surrogate pairs, so that one of them spoils its own value only.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="surrogateescape").decode
        self._decoder = json.JSONDecoder()
        self._text, self._at, self._size = "", 0, _PIECE
        self._line, self._column = 1, 1  # of the text's first character

    def _more(self) -> bool:
        piece = self._file.read(self._size)
        self._line, self._column = self._position(self._at)
        self._text, self._at = self._text[self._at :] + self._decode(piece, not piece), 0
        self._size = max(_PIECE, len(self._text))  # so that a long value is not tried again and again
        return bool(piece)

    def _position(self, at: int) -> tuple[int, int]:
        newlines = self._text.count("\n", 0, at)
        column = at - self._text.rfind("\n", 0, at) if newlines else self._column + at
        return self._line + newlines, column

    def wrong(self, problem: str, at: int | None = None) -> ValueError:
        """The error of a problem at a place of the text; by default where it is read."""
        line, column = self._position(self._at if at is None else at)
        return ValueError(f"{problem} at line {line}, character {column}")

    def _broken(self, problem: str, at: int) -> ValueError:
        ends = at >= len(self._text) or problem.startswith("Unterminated")
        return self.wrong("it ends within a value", len(self._text)) if ends else self.wrong(problem, at)

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACES:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, wanted: str) -> str:
        """Read one of the wanted characters."""
        found = self.peek()
        if not found or found not in wanted:
            right = " or ".join(map(repr, wanted))
            raise self.wrong(f"it ends where {right} is due" if not found else f"{found!r} stands where {right} is due")
        self._at += 1
        return found

    def value(self) -> object:
        """Read a whole value."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                after = error.pos - self._at
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _CUT
                if cut and len(self._text) - self._at > _LONGEST:
                    raise self.wrong(f"a value is longer than {_LONGEST >> 20} MB") from None
                if not cut or not self._more():
                    raise self._broken(error.msg, self._at + after) from None
                continue
            except RecursionError:
                raise self.wrong("values are nested too deeply") from None
            except ValueError:  # of Python's limit
                raise self.wrong("a value holds an integer of too many digits") from None
            length = end - self._at
            if len(self._text) - end < _CUT and self._more():  # a number may go on
                continue
            self._at += length
            return value


def json_document(file: BinaryIO) -> Iterator[object]:
    """The elements of a JSON array, the features of a FeatureCollection, or a single object of a file.

    Raises:
        ValueError: it is not JSON, or breaks off; says where. What came before has been yielded.
    """
    text = _Text(file)
    if text.peek() == "[":
        yield from _elements(text)
    else:
        yield from _features(text)
    if text.peek():
        raise text.wrong(f"{text.peek()!r} follows the end of the document")


def _elements(text: _Text) -> Iterator[object]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    while True:
        yield text.value()
        if text.take(",]") == "]":
            return


def _features(text: _Text) -> Iterator[object]:
    members: dict[str, object] = {}
    text.take("{")
    streamed = False
    while text.peek() != "}":
        name = text.value()
        text.take(":")
        if name == "features" and text.peek() == "[":
            streamed = True
            yield from _elements(text)
        else:
            members[str(name)] = text.value()
        if text.peek() != "}":
            text.take(",")
    text.take("}")
    if not streamed:
        yield members
