"""Which file of Spark's classes a JVM is to map."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.model.errors import SettingError
from spatialstream.spark.java import classes_file, mapped_classes


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, with an empty cache."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").write_text("17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPATIALSTREAM_CACHE", str(tmp_path / "cache"))
    return home


def test_no_file_is_mapped_that_has_not_been_made() -> None:
    assert mapped_classes() == ""
    path = classes_file()
    path.parent.mkdir(parents=True)
    path.touch()
    assert f'"-XX:SharedArchiveFile={path}"' in mapped_classes()


def test_each_java_has_a_file_of_its_own(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = classes_file()
    assert classes_file() == known
    java.rename(tmp_path / "another")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "another"))
    assert classes_file() != known


def test_each_spark_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = classes_file()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/a.jar").touch()
    mine = classes_file()
    (tmp_path / "spark/jars/b.jar").touch()
    assert len({known, mine, classes_file()}) == 3


def test_a_java_that_is_not_there_is_told(java: Path) -> None:
    (java / "bin/java").unlink()
    with pytest.raises(SettingError, match=r"^java: there is no .*/jdk/bin/java; set JAVA_HOME to a JDK$"):
        classes_file()
