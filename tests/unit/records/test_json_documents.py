"""Documents are read as a stream: the same values as the whole document has, however long they are."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.records.json_documents import json_document

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Dripping(io.BytesIO):
    """A file that gives few bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__(content)
        self._most = size

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._most)


@given(st.lists(VALUES), st.integers(1, 50), st.sampled_from([None, 1]))
def test_an_array_gives_its_elements(values: list[Any], size: int, indent: int | None) -> None:
    content = json.dumps(values, indent=indent, ensure_ascii=False).encode(errors="surrogatepass")
    if b"\xed" not in content:
        assert list(json_document(Dripping(content, size))) == values


@given(st.lists(VALUES), st.integers(1, 50))
def test_a_collection_gives_its_features(features: list[Any], size: int) -> None:
    content = json.dumps({"crs": {"features": []}, "features": features, "bbox": [1, 2]}).encode()
    assert list(json_document(Dripping(content, size))) == features


def test_an_object_without_features_is_one_record() -> None:
    assert list(json_document(io.BytesIO(b'{"id": 1, "features": null}'))) == [{"id": 1, "features": None}]


def test_a_long_value_is_read_whole() -> None:
    values = ["x" * 3_000_000, "y"]
    assert list(json_document(io.BytesIO(json.dumps(values).encode()))) == values


def test_an_error_is_found_without_reading_on() -> None:
    content = io.BytesIO(b'[{"a": 1 "b"}' + b" " * 100_000_000)
    with pytest.raises(ValueError, match="Expecting ',' delimiter at line 1, character 10"):
        list(json_document(content))
    assert content.tell() < 10_000_000
