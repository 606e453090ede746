"""JSON serialization of dataclasses of numbers, strings, tuples, mappings and other such dataclasses.

Reading checks values against the types of the fields, so that a damaged or foreign file is detected where it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["from_json", "to_json"]

T = TypeVar("T")


def to_json(value: object) -> str:
    """Serialize a value as one line of JSON."""
    return json.dumps(value, default=lambda each: {field.name: getattr(each, field.name) for field in fields(each)})


def from_json(kind: type[T], text: str | bytes) -> T:
    """Deserialize an instance of a dataclass from the JSON of :func:`to_json`.

    Raises:
        ValueError, TypeError, LookupError, AttributeError, RecursionError: the text is not an instance of ``kind``.
    """
    value: T = _read(kind, json.loads(text))
    return value


def _read(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        types = _types(kind)
        return kind(**{name: _read(types[name], each) for name, each in value.items()})
    if origin in (Union, UnionType):
        return None if value is None else _read(next(each for each in get_args(kind) if each is not type(None)), value)
    if origin is tuple:
        return _tuple(get_args(kind), value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        of_key, of_value = get_args(kind)
        return {of_key(key): _read(of_value, each) for key, each in value.items()}
    if kind in (int, str) and type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    if kinds[-1] is ...:
        kinds = (kinds[0],) * len(value)
    return tuple(_read(kind, each) for kind, each in zip(kinds, value, strict=True))


@lru_cache(maxsize=32)
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
