"""The gateway's log: one line of JSON per event on standard error, without headers, query strings and bodies."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

__all__ = ["LOGGER", "Lines", "event", "set_up"]

LOGGER = logging.getLogger("spatialstream.gateway")


_UNSHOWN = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that JSON allows unescaped, but that a terminal may interpret, that end a line, or cannot be encoded."""


class Lines(logging.Formatter):
    """Formats records as lines of JSON, of characters that no terminal interprets."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line of JSON."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return _UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def event(name: str, level: int = logging.INFO, **fields: object) -> None:
    """Log an event."""
    LOGGER.log(level, name, extra={"fields": fields})


def set_up(*, quiet: bool) -> None:
    """Configure the loggers of the gateway and of its server; with ``quiet`` only errors are logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, level in ((LOGGER.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR if quiet else level)
