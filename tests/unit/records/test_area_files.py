"""Files of areas."""

from __future__ import annotations

import json
from pathlib import Path

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
    with pytest.raises(SettingError, match=r"areas: .* cannot be read: "):
        areas_of_file(tmp_path / "missing", None, WGS84, DEFAULT_RULE)
