"""What a job's Spark session may be told, and what it may not."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream.spark.session import check_conf, new_secret

_GUARDS = ("spark.authenticate", "spark.network.crypto.enabled", "spark.network.crypto.saslFallback")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.authenticate", "false"),
        ("spark.authenticate", "TRUE "),
        ("spark.authenticate.secret", "0123"),
        ("spark.authenticate.secret.file", "somewhere"),
        ("spark.network.crypto.enabled", "false"),
        ("spark.network.crypto.saslFallback", "true"),
        ("spark.network.crypto.cipher", "AES/CTR/NoPadding"),
        ("spark.network.crypto.authEngineVersion", "1"),
    ],
)
def test_what_would_weaken_authentication_is_refused_without_its_value(key: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{key} cannot be set") as error:
        check_conf({"spark.executor.cores": "2", key: value})
    assert value not in str(error.value) or value in ("false", "true", "1")


@given(st.sampled_from(_GUARDS), st.text())
def test_no_value_switches_it_off(key: str, value: str) -> None:
    try:
        check_conf({key: value})
    except SettingError:
        return
    assert value == ("false" if key.endswith("saslFallback") else "true")


def test_other_settings_are_taken() -> None:
    check_conf({"spark.authenticate": "true", "spark.network.timeout": "300s", "spark.driver.bindAddress": "0.0.0.0"})


def test_a_secret_is_new_each_time_and_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "worker.secret"
    path.write_text("of an earlier start")
    path.chmod(0o644)

    first = new_secret(path)
    assert path.read_bytes() == first
    second = new_secret(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(first) == 64
    assert first != second == path.read_bytes()


def test_a_secret_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"worker\.secret cannot be written"):
        new_secret(tmp_path / "none" / "worker.secret")
