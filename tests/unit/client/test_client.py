"""What users import is there."""

from __future__ import annotations

import pytest

from spatialstream import client


@pytest.mark.parametrize("name", client.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(client, name) is not None


def test_other_names_are_not() -> None:
    assert set(dir(client)) == set(client.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Asked'"):
        _ = client.Asked
