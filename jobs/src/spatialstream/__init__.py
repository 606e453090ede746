"""spatialstream: standing and one-off questions over a fast stream of objects with a place, a time and a text."""

__version__ = "0.1.0"
