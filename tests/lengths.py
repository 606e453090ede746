"""How long tests are: short with each change, at length with ``HYPOTHESIS_PROFILE=explore`` (``make test-all``)."""

from __future__ import annotations

import os

import pytest

AT_LENGTH = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


def examples(few: int, many: int) -> int:
    """How many cases of a property are tried: few with each change, many at length."""
    return many if AT_LENGTH else few


def portions(count: int) -> pytest.MarkDecorator:
    """Parametrizes a property of whole streams by ``portion``: one with each change, and at length ``count``.

    Each tries as many cases, and several workers share them. One that is the last to run would keep the others waiting.
    """
    return pytest.mark.parametrize("portion", range(examples(1, count)))
