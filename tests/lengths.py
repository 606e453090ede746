"""How long tests are: short with each change, at length with ``HYPOTHESIS_PROFILE=explore`` (``make test-all``)."""

from __future__ import annotations

import os

AT_LENGTH = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


def examples(few: int, many: int) -> int:
    """How many cases of a property are tried: few with each change, many at length."""
    return many if AT_LENGTH else few
