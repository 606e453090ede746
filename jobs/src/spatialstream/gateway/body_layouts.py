"""Bodies of objects in other layouts than JSON Lines: text with columns, and GeoJSON.

They are read as files in these formats are (:mod:`~spatialstream.records.foreign`), and sent as JSON Lines of the
objects' fields.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request

from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.problems import Problem
from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.records.columns import check_fields, parse_columns
from spatialstream.records.foreign import ObjectReader, check_records, records_of
from spatialstream.records.formats import is_collection
from spatialstream.records.layout import InputLayout, parse_layout
from spatialstream.records.reference import Decoded

__all__ = ["CSV", "FORMS", "PARAMETERS", "BodyLayout", "body_layout"]

CSV = "text/csv"
FORMS = {CSV: "text", GEOJSON: "document"}
"""What a body of a media type holds, see :func:`~spatialstream.records.foreign.records_of`."""
_LAYOUT = ("separator", "header", "quotes", "time_format", "time_zone", "at")
PARAMETERS = ("columns", *_LAYOUT)
"""Parameters that say how such a body is laid out."""
_BLOCK = 4_096
"""Records that are parsed at a time."""


@dataclass(frozen=True, slots=True)
class BodyLayout:
    """How a body is laid out.

    Attributes:
        form: what it holds.
        columns: our field -> the expression of its column.
        layout: how its records are laid out.
    """

    form: str
    columns: Mapping[str, str]
    layout: InputLayout

    def blocks(self, body: bytes, space: Space, rule: TermRule) -> Iterator[tuple[Decoded[ObjectBatch], bytes]]:
        """The objects of a body, and as JSON Lines, block by block: parsed, a body takes many times its size.

        Raises:
            Problem: a column is given to no field, or is not there, or the body has no record that can be read.
        """
        try:
            check_fields(self.columns, rule)
        except SettingError as error:
            raise Problem("invalid", str(error), [{"parameter": "columns", "detail": error.problem}]) from None
        try:
            check_records("body", io.BytesIO(body), self.form, self.layout, self.columns, space)
            reader = ObjectReader(self.layout, space, rule, self.columns, "ms", cells=self.form == "text")
            records = records_of(io.BytesIO(body), self.form, self.layout)
            while block := list(islice(records, _BLOCK)):
                yield reader.read(block)
        except SettingError as error:
            raise Problem("invalid", str(error), [{"pointer": "#", "detail": error.problem}]) from None

    def place(self, body: bytes, number: int) -> dict[str, Any]:
        """Where the record of a number is in a body: its line, or a pointer to it."""
        if self.form == "text":
            return {"line": number}
        start = body.lstrip()[:1]
        within = "#/features/" if is_collection(body) else "#/" if start == b"[" else None
        return {"pointer": "#" if within is None else f"{within}{number - 1}"}


def body_layout(request: Request, form: str) -> BodyLayout | None:
    """How the body of a request is laid out; None: as JSON Lines.

    Args:
        request: the request.
        form: the media type of its body.

    Raises:
        Problem: a parameter is invalid, or of another media type.
    """
    parameters = {name: request.query_params[name] for name in PARAMETERS if name in request.query_params}
    of_text = [name for name in ("separator", "header", "quotes") if name in parameters and form == GEOJSON]
    if other := [*of_text, *(parameters if form not in FORMS else ())]:
        told = f"is a parameter of {CSV if of_text else ' and '.join(FORMS)}, and the body is {form}"
        raise Problem("invalid", f"{other[0]}: {told}", [{"parameter": other[0], "detail": told}])
    if form not in FORMS:
        return None
    try:
        columns = parse_columns(parameters.get("columns", ""))
        layout = parse_layout(
            {name: parameters[name] for name in _LAYOUT if name in parameters}, int(time.time() * 1000)
        )
        layout.check(columns)
    except SettingError as error:
        raise Problem("invalid", str(error), [{"parameter": error.setting, "detail": error.problem}]) from None
    except RecordError as error:
        raise Problem("invalid", str(error), [{"parameter": error.field, "detail": error.problem}]) from None
    return BodyLayout(FORMS[form], columns, layout)
