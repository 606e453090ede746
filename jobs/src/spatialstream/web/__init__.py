"""What the console and the page of a run have in common: ES modules, a style, the outlines of land."""

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent / "static"
"""The gateway serves its files beside those of the console; the page of a run holds them itself."""
