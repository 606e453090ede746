"""Imported before processes are forked that are actors: all kernels are there, as in Spark's daemon."""

from __future__ import annotations

import tests.contracts.engines  # noqa: F401 - what the processes run
from spatialstream.kernels import prepare

prepare()
