"""The operator's log, as text or JSON lines."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

from spatialstream_operator.causes import cause
from spatialstream_operator.config import OperatorConfig

__all__ = ["AboutStreams", "Unasked", "set_up_logging"]

_REPEATED = 600.0
_LONGEST = 1000


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as JSON."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class AboutStreams(logging.Filter):
    """Adds the stream's name to Kopf's messages, and limits equal ones to one in ten minutes.

    Drops the messages about retried handlers, because the handlers log the reason themselves. Removes request headers
    from error texts.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    @property
    def remembered(self) -> int:
        """The number of messages whose repetitions are dropped."""
        return len(self._said)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record; also adds the name to it."""
        text = record.getMessage()
        if "failed temporarily" in text:
            return False
        about = getattr(record, "k8s_ref", {})
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = text.replace(repr(error), cause(error))
        record.msg, record.args = f"{about.get('namespace')}/{about.get('name')}: {text}", ()
        if type(error).__module__.startswith(
            ("kopf.", "aiohttp.")
        ):  # the message is sufficient; it is no bug of the operator
            record.exc_info = record.exc_text = None
        now, key = self._clock(), re.sub(r"\d+", "", record.msg)
        if now - self._said.get(key, -_REPEATED) < _REPEATED:
            return False
        if len(self._said) >= _LONGEST:
            self._said.clear()
        self._said[key] = now
        return True


class Unasked(logging.Filter):
    """Drops asyncio's messages about exceptions of Kopf's tasks that were not retrieved because Kopf was stopped."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        error = record.exc_info[1] if record.exc_info else None
        return not type(error).__module__.startswith("kopf.")


def set_up_logging(config: OperatorConfig) -> None:
    """Configure logging to standard error."""
    handler = logging.StreamHandler()
    if config.log_format == "json":
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler], force=True)
    level = logging.getLogger().level
    for chatty in ("urllib3", "kazoo", "aiohttp.access", "kopf.objects"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, level))
    # its failures are logged by the watcher that started it, on one line
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    logging.getLogger("kopf.objects").addFilter(AboutStreams())
    logging.getLogger("asyncio").addFilter(Unasked())
