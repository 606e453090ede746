"""Files shared by the console and the page of a run: ES modules, a style sheet, the outlines of land."""

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent / "static"
"""The gateway serves these files together with the console's; the page of a run contains them."""
