"""The layout of files of objects that are not in the project's own formats.

Local times: of the two moments of a time that clocks show twice, the earlier one is meant; a time that they skip is
none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.times import TIME_LIMIT, parse_time, time_unit

__all__ = ["SEPARATORS", "InputLayout", "parse_layout"]

SEPARATORS = (",", ";", "\t", "|")
"""Characters that can separate the columns of a text file."""

_DIGITS = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class InputLayout:
    """How the records of files of objects are laid out.

    Attributes:
        separator: between columns, one of :data:`SEPARATORS`; None: found by looking at the first lines.
        header: whether the first line names the columns; without it they are ``1``, ``2``, ...
        quotes: whether ``"`` encloses cells, as in CSV; None: in all files but those that tabs separate.
        time_format: of ``t`` and of properties that are times, as ``strptime`` takes it; None: ISO 8601 or numbers.
        time_zone: IANA name of the zone of times that name none; None: UTC.
        at: the time of all objects in ms; None: each has its own.
        time_unit: of times that are numbers, ``"s"``, ``"ms"`` or ``"us"``; None: that of the run.
    """

    separator: str | None = None
    header: bool = True
    quotes: bool | None = None
    time_format: str | None = None
    time_zone: str | None = None
    at: int | None = None
    time_unit: str | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: one of them is invalid.
        """
        if self.separator is not None and self.separator not in SEPARATORS:
            raise SettingError("separator", f"{self.separator!r} is not a separator; give ',', ';', '|' or a tab")
        if self.time_format is not None and "%" not in self.time_format:
            raise SettingError("time_format", f"{self.time_format!r} has no fields; give one such as '%d/%m/%Y %H:%M'")
        if self.at is not None and (self.time_format is not None or self.time_zone is not None):
            raise SettingError("at", "is the time of all objects; leave out the format and the zone of times")
        if self.at is not None and abs(self.at) > TIME_LIMIT:
            raise SettingError("at", f"{self.at} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}")
        if self.time_unit is not None:
            time_unit(self.time_unit, "time_unit")
        self.zone()

    @property
    def plain(self) -> bool:
        """Whether all settings are those of the project's own formats."""
        return self == InputLayout(time_unit=self.time_unit)

    @property
    def of_text(self) -> bool:
        """Whether a setting is given that only text with columns has."""
        return (self.separator, self.header, self.quotes) != (None, True, None)

    def check(self, columns: Mapping[str, str]) -> None:
        """Refuse columns that contradict the layout.

        Raises:
            SettingError: they do.
        """
        if self.at is not None and "t" in columns:
            raise SettingError("at", f"is the time of all objects, and the columns read it from {columns['t']!r}")

    def zone(self) -> tzinfo:
        """The zone of times that name none.

        Raises:
            SettingError: it is unknown.
        """
        if self.time_zone is None:
            return UTC
        try:
            return ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError):  # a zone that is not found is a KeyError
            pass
        raise SettingError("time_zone", f"{self.time_zone!r} is unknown; give an IANA name, such as Europe/Berlin")

    def time_reader(self, field: str = "t") -> Callable[[object], object]:
        """A function from a value of a field to what :func:`~spatialstream.model.times.parse_time` reads.

        The function raises RecordError if a time does not fit the format, or if clocks skip it.
        """
        zone, form = self.zone(), self.time_format
        if form is None and self.time_zone is None:
            return lambda value: value

        def read(value: object) -> object:
            if value is None or (form is None and not isinstance(value, str)):
                return value
            moment = _iso(str(value)) if form is None else _formatted(str(value).strip(), form, field)
            return value if moment is None else _in_utc(moment, zone, field)

        return read


_NAMED = {"tab": "\t", "\\t": "\t"}


def parse_layout(given: Mapping[str, str], now: int) -> InputLayout:
    """A layout of texts, as options and parameters give it.

    Args:
        given: by the names of the layout's attributes. ``separator`` may be ``tab``, ``header`` is ``true`` or
            ``false``, ``quotes`` is ``csv`` or ``none``, and ``at`` is a time or ``now``.
        now: the time, in ms.

    Raises:
        SettingError: one of them is invalid.
    """
    separator, at = given.get("separator"), given.get("at")
    try:
        moment = now if at == "now" else None if at is None else parse_time(at, "at")
    except RecordError as error:
        raise SettingError("at", f"{error.problem}, or now") from None
    return InputLayout(
        _NAMED.get(separator, separator) if separator else separator,
        _choice(given, "header", {"true": True, "false": False}) is not False,
        _choice(given, "quotes", {"csv": True, "none": False}),
        given.get("time_format"),
        given.get("time_zone"),
        moment,
    )


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, bool]) -> bool | None:
    if name not in given:
        return None
    if given[name] not in choices:
        raise SettingError(name, f"{given[name]!r} is not a choice; give {' or '.join(choices)}")
    return choices[given[name]]


def _formatted(text: str, form: str, field: str) -> datetime:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        raise RecordError(field, f"{text!r} does not fit the time format {form!r}") from None


def _iso(text: str) -> datetime | None:
    """The moment of a text in ISO 8601 without a zone; None for all other texts, which are read as they are."""
    if _DIGITS.fullmatch(text):
        return None
    try:
        parse_time(text)
        moment = datetime.fromisoformat(text.upper())
    except (RecordError, ValueError):
        return None
    return moment if moment.tzinfo is None else None


def _in_utc(moment: datetime, zone: tzinfo, field: str) -> str:
    local = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
    try:
        result = local.astimezone(UTC)
        exists = moment.tzinfo is not None or result.astimezone(zone).replace(tzinfo=None) == moment
    except OverflowError:
        raise RecordError(field, f"'{moment}' is out of range") from None
    if not exists:
        raise RecordError(field, f"'{moment}' does not exist in {zone}: clocks skip it")
    return result.isoformat()
