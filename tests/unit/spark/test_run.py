"""A run that is refused before Spark starts."""

from pathlib import Path

import pytest

from spatialstream.model.errors import SettingError
from spatialstream.spark.run import RunSettings, run


@pytest.mark.parametrize(
    ("name", "columns", "told"),
    [
        ("o.csv", {"id": "code"}, "has no column 'code'"),
        ("o.csv", {}, "has no column 'text'"),
        ("none.csv", {}, "none"),
        (
            "o.csv",
            {"text": "headline", "prority": "id"},
            "'prority' is not a field of objects; they are id, .*; declare it, if it is a property",
        ),
    ],
)
def test_files_that_are_refused_leave_no_folder(tmp_path: Path, name: str, columns: dict[str, str], told: str) -> None:
    (tmp_path / "o.csv").write_text("id,t,lon,lat,headline\na,1,2,3,x\n")
    with pytest.raises(SettingError, match=told):
        run(RunSettings((tmp_path / name,), (), tmp_path / "out", columns=columns))
    assert not (tmp_path / "out").exists()
