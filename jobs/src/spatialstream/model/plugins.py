"""Kinds of queries that are not in this distribution: packages named in the environment.

``SPATIALSTREAM_KINDS`` lists packages, separated by commas. Each has a module for each table of kinds
(``docs/query-types.md``), with rows for it under the name of the table. A table reads them once, when it is imported,
so the tables never change, and a process that is started with the same environment has the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

__all__ = ["VARIABLE", "plugged"]

VARIABLE = "SPATIALSTREAM_KINDS"


def plugged(part: str) -> Iterator[Any]:
    """The modules of one name of the packages in :data:`VARIABLE`, in their order.

    Raises:
        ImportError: a package, or its module, is missing.
    """
    for package in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        yield import_module(f"{package}.{part}")
