"""The gateway's log: a line of JSON an event, on standard error. It has no header, no query string and no body."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

__all__ = ["LOGGER", "event", "set_up"]

LOGGER = logging.getLogger("spatialstream.gateway")


_UNSHOWN = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What JSON may have as it is, and a terminal takes for a command or a line's end, or cannot be written."""


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return _UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def event(name: str, level: int = logging.INFO, **fields: object) -> None:
    """Write that something has happened."""
    LOGGER.log(level, name, extra={"fields": fields})


def set_up(*, quiet: bool) -> None:
    """Have the gateway's events, and what its server says, written out; errors alone if quiet is wanted."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    for name, level in ((LOGGER.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR if quiet else level)
