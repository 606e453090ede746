"""Typed access to the fields of a resource, with defaults; errors name the full path of the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.times import parse_duration

__all__ = ["Fields"]


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping in a resource, and its path.

    A field that is absent or null has the default; a default of None makes the field required, unless the method says
    otherwise. All methods raise SettingError, which names the field, if the value has another type.

    Attributes:
        content: the mapping.
        path: its path, such as ``spec.kafka``.
    """

    content: Mapping[str, Any]
    path: str

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}"

    def has(self, name: str) -> bool:
        """Whether the field is present."""
        return self.content.get(name) is not None

    def part(self, name: str) -> Fields:
        """A nested mapping; an empty one if absent."""
        return Fields(self.mapping(name), self.at(name))

    def required(self, name: str) -> Fields:
        """A nested mapping that is required."""
        self._value(name, None)
        return self.part(name)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A mapping as a plain dict; an empty one if absent."""
        value = self._value(name, {})
        if not isinstance(value, Mapping):
            raise SettingError(self.at(name), f"{value!r} is not a mapping")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of names to strings."""
        for key, value in self.mapping(name).items():
            if not isinstance(value, str):
                raise SettingError(f"{self.at(name)}.{key}", f"{value!r} is not a string")
        return dict(self.mapping(name))

    def texts_of(self, names: Sequence[str]) -> dict[str, str]:
        """The strings of those fields that are present."""
        return {name: self.text(name) for name in names if self.has(name)}

    def items(self, name: str) -> Sequence[Any]:
        """A list; an empty one if absent."""
        value = self._value(name, [])
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise SettingError(self.at(name), f"{value!r} is not a list")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise SettingError(self.at(name), f"{value!r} is not a string")
        return value

    def one_of(self, name: str, values: Sequence[str], default: str) -> str:
        """A string out of a few."""
        value = self.text(name, default)
        if value not in values:
            raise SettingError(self.at(name), f"{value!r} is not one of {', '.join(values)}")
        return value

    def whole(self, name: str, default: int | None = None, least: int = 0) -> int:
        """An integer of at least ``least``."""
        value = self._value(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingError(self.at(name), f"{value!r} is not an integer of at least {least}")
        return value

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SettingError(self.at(name), f"{value!r} is not a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise SettingError(self.at(name), f"{value!r} is neither true nor false")
        return value

    def duration(self, name: str, default: str) -> int:
        """A duration in ms."""
        try:
            return parse_duration(self.text(name, default), self.at(name))
        except RecordError as error:
            raise SettingError(error.field, error.problem) from None

    def _value(self, name: str, default: Any) -> Any:
        value = self.content.get(name)
        if value is not None:
            return value
        if default is None:
            raise SettingError(self.at(name), "is required")
        return default
