"""A result row: a dictionary that a notebook displays on a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream.model.space import WGS84, Space

__all__ = ["Answer"]


class Answer(dict[str, Any]):
    """A result row, with the fields that the stream gives it.

    Args:
        row: its fields.
        query: the record of the query that it answers.
        space: the stream's space.
    """

    def __init__(self, row: Mapping[str, Any], query: Mapping[str, Any], space: Space = WGS84) -> None:
        super().__init__(row)
        self._query, self._space = query, space

    def _repr_html_(self) -> str:
        """HTML for notebooks: the query, and the objects on a map or the terms as bars."""
        from spatialstream.report import answer_html

        return answer_html([self], self._query, self._space)
