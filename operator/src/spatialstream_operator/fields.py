"""Reading the fields of a resource: typed, with a default, and with the field's whole path in every error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.times import parse_duration

__all__ = ["Fields"]


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping of a resource, and where in the resource it is.

    A field that is absent or null has the default; a default of None makes it a field that must be there, unless the
    method says otherwise. All methods raise SettingError, which names the field, for what is of another type.

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
        """Whether the field is there."""
        return self.content.get(name) is not None

    def part(self, name: str) -> Fields:
        """A mapping within; an empty one if it is absent."""
        return Fields(self.mapping(name), self.at(name))

    def required(self, name: str) -> Fields:
        """A mapping within that must be there."""
        self._value(name, None)
        return self.part(name)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A mapping as it is; an empty one if it is absent."""
        value = self._value(name, {})
        if not isinstance(value, Mapping):
            raise SettingError(self.at(name), f"{value!r} is not a mapping of names to values")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of names to texts."""
        for key, value in self.mapping(name).items():
            if not isinstance(value, str):
                raise SettingError(f"{self.at(name)}.{key}", f"{value!r} is not a text")
        return dict(self.mapping(name))

    def texts_of(self, names: Sequence[str]) -> dict[str, str]:
        """The texts of those fields that are there."""
        return {name: self.text(name) for name in names if self.has(name)}

    def items(self, name: str) -> Sequence[Any]:
        """A list; an empty one if it is absent."""
        value = self._value(name, [])
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise SettingError(self.at(name), f"{value!r} is not a list")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise SettingError(self.at(name), f"{value!r} is not a text")
        return value

    def one_of(self, name: str, values: Sequence[str], default: str) -> str:
        """One of a few texts."""
        value = self.text(name, default)
        if value not in values:
            raise SettingError(self.at(name), f"{value!r} is not one of {', '.join(values)}")
        return value

    def whole(self, name: str, default: int | None = None, least: int = 0) -> int:
        """A whole number that is not less than ``least``."""
        value = self._value(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingError(self.at(name), f"{value!r} is not a whole number of at least {least}")
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
