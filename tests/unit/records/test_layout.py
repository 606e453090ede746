"""Layouts: what contradicts itself is refused, and times in formats and zones of their own become moments."""

from __future__ import annotations

import pytest

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.times import parse_time
from spatialstream.records.layout import InputLayout


@pytest.mark.parametrize(
    ("layout", "text", "moment"),
    [
        (InputLayout(time_format="%d/%m/%Y %H:%M"), "05/07/2021 08:30", "2021-07-05T08:30Z"),
        (InputLayout(time_format="%d.%m.%Y", time_zone="Europe/Berlin"), "05.07.2021", "2021-07-04T22:00Z"),
        (InputLayout(time_zone="America/New_York"), "2021-01-05T08:30", "2021-01-05T13:30Z"),
        (InputLayout(time_zone="America/New_York"), "2021-01-05T08:30Z", "2021-01-05T08:30Z"),
        (InputLayout(time_zone="Europe/Berlin"), "2021-10-31T02:30", "2021-10-31T00:30Z"),  # shown twice
        (InputLayout(time_zone="Europe/Berlin"), "1890-01-01", "1889-12-31T23:06:32Z"),
        (InputLayout(time_format="%Y%m%d"), "20210705", "2021-07-05"),
    ],
)
def test_local_times_become_moments(layout: InputLayout, text: str, moment: str) -> None:
    assert parse_time(layout.time_reader()(text)) == parse_time(moment)


@pytest.mark.parametrize(
    ("layout", "text", "told"),
    [
        (InputLayout(time_format="%d/%m/%Y"), "2021-07-05", "'2021-07-05' does not fit the time format '%d/%m/%Y'"),
        (InputLayout(time_zone="Europe/Berlin"), "2021-03-28T02:30", "does not exist in Europe/Berlin"),
    ],
)
def test_times_that_are_none_are_refused(layout: InputLayout, text: str, told: str) -> None:
    with pytest.raises(RecordError, match=told):
        layout.time_reader()(text)


def test_numbers_have_no_zone() -> None:
    read = InputLayout(time_zone="Europe/Berlin").time_reader()
    assert read("1397474951100") == "1397474951100"
    assert read(1397474951100) == 1397474951100


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("separator", {"separator": "x"}),
        ("time_format", {"time_format": "dd.mm.yyyy"}),
        ("time_zone", {"time_zone": "Europe/Nowhere"}),
        ("time_zone", {"time_zone": "../etc"}),
        ("at", {"at": 5, "time_zone": "Europe/Berlin"}),
        ("at", {"at": 10**18}),
    ],
)
def test_invalid_layouts_are_refused(setting: str, values: dict[str, object]) -> None:
    with pytest.raises(SettingError) as caught:
        InputLayout(**values)  # type: ignore[arg-type]
    assert caught.value.setting == setting


def test_one_time_for_all_and_a_column_of_times_contradict() -> None:
    with pytest.raises(SettingError, match="columns read it from 'when'"):
        InputLayout(at=5).check({"t": "when"})
