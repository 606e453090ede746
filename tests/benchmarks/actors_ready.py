"""Imported before actor processes are forked, so that all kernels are loaded, as in Spark's daemon."""

from __future__ import annotations

import tests.contracts.engines  # noqa: F401 - what the processes run
from spatialstream.kernels import prepare

prepare()
