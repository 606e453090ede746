"""Files of areas."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from spatialstream.model.errors import SettingError
from spatialstream.model.space import WGS84
from spatialstream.model.terms import DEFAULT_RULE
from spatialstream.records.area_files import areas_of_file

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}


def test_areas_of_a_file_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "areas.geojson"
    feature = {"type": "Feature", "id": 1, "properties": {"name": "mitte"}, "geometry": SQUARE}
    path.write_text("\ufeff" + json.dumps({"type": "FeatureCollection", "features": [feature]}))
    assert areas_of_file(path, None, WGS84, DEFAULT_RULE).names == ["1"]
    assert areas_of_file(str(path), "name", WGS84, DEFAULT_RULE).names == ["mitte"]
    with pytest.raises(SettingError, match=r"areas .*areas\.geojson: feature 1: has no property 'nom': its properties"):
        areas_of_file(path, "nom", WGS84, DEFAULT_RULE)
    path.write_text("{")
    with pytest.raises(SettingError, match=r"areas: .*areas\.geojson is not JSON: "):
        areas_of_file(path, None, WGS84, DEFAULT_RULE)
    for name in ("missing", "missing.zst"):
        with pytest.raises(SettingError, match=r"areas: .* cannot be read: "):
            areas_of_file(tmp_path / name, None, WGS84, DEFAULT_RULE)


@pytest.mark.parametrize("separator", ["", "\x1e"])
def test_features_one_a_line_are_a_collection_of_them(tmp_path: Path, separator: str) -> None:
    features = [{"type": "Feature", "id": each, "properties": {}, "geometry": SQUARE} for each in ("a", "b")]
    path = tmp_path / "areas.geojsonl"
    path.write_text("".join(f"{separator}{json.dumps(each)}\n\n" for each in features))
    assert areas_of_file(path, None, WGS84, DEFAULT_RULE).names == ["a", "b"]
    path.write_text(json.dumps(features[0]) + "\n{\n")
    with pytest.raises(SettingError, match=r"areas: .*areas\.geojsonl line 2 is not JSON: "):
        areas_of_file(path, None, WGS84, DEFAULT_RULE)
    one = tmp_path / "one.geojsonl"
    one.write_text(json.dumps(features[0]) + "\n")
    assert areas_of_file(one, None, WGS84, DEFAULT_RULE).names == ["a"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_is_read_and_one_that_is_cut_off_is_told(tmp_path: Path, suffix: str) -> None:
    said = json.dumps({"type": "Feature", "id": "a", "properties": {}, "geometry": SQUARE}).encode()
    packed = gzip.compress(said) if suffix == "gz" else pa.compress(said, "zstd", asbytes=True)
    path = tmp_path / f"areas.geojson.{suffix}"
    path.write_bytes(packed)
    assert areas_of_file(path, None, WGS84, DEFAULT_RULE).names == ["a"]
    for broken in (packed[: len(packed) // 2], said):
        path.write_bytes(broken)
        with pytest.raises(SettingError, match=r"areas: .* cannot be read: "):
            areas_of_file(path, None, WGS84, DEFAULT_RULE)
