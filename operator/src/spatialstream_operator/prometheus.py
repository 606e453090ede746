"""What Prometheus knows about a stream's load.

Series are told apart by ``namespace`` and ``pod``, as every usual way of scraping pods sets them. A question that
Prometheus cannot answer is no figure, never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from spatialstream.model.errors import Unavailable

__all__ = ["Prometheus", "Sample"]

_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series.

    Attributes:
        labels: of the series.
        value: the value; may be infinite, never NaN.
    """

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """A Prometheus server, asked by its HTTP API.

    Args:
        url: where it is, such as ``http://prometheus:9090``.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def query(self, expression: str) -> list[Sample]:
        """The instant vector of an expression, now.

        Raises:
            Unavailable: there is no answer, or no usable one.
        """
        try:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(f"{self._url}/api/v1/query", data={"query": expression}) as answer,
            ):
                record = await answer.json(content_type=None)
            if record["status"] != "success":
                raise Unavailable(f"Prometheus at {self._url} refuses a question: {record.get('error', 'no reason')}")
            return [
                Sample(series["metric"], value)
                for series in record["data"]["result"]
                if not math.isnan(value := float(series["value"][1]))
            ]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"Prometheus at {self._url} cannot be reached: {error!r}") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Unavailable(f"Prometheus at {self._url} gives an answer of another form: {error!r}") from None

    async def value(self, expression: str) -> float | None:
        """The value of an expression with one series; None if it has none.

        Raises:
            Unavailable: see :meth:`query`.
        """
        samples = await self.query(expression)
        return samples[0].value if samples else None
