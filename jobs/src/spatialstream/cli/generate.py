"""``spatialstream generate``: synthetic streams and query workloads."""

from __future__ import annotations

from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    commands.add_parser("generate", help="write a synthetic stream")
