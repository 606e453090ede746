import asyncio
import gc
import logging
import sys

import aiohttp
import pytest
from kopf import AdmissionError

from spatialstream_operator.logs import AboutStreams, Unasked
from tests.unit.operator.garbled import garbled

ABOUT = {"k8s_ref": {"namespace": "geo", "name": "quakes"}}


class Time:
    now = 0.0

    def __call__(self):
        return self.now


def record(text, error=None, **about):
    found = None
    if error is not None:
        try:
            raise error
        except type(error):
            found = sys.exc_info()
    made = logging.LogRecord("kopf.objects", logging.ERROR, "", 0, text, (), found)
    vars(made).update(about or ABOUT)
    return made


def test_what_kopf_says_of_a_stream_bears_its_name_and_comes_once():
    now = Time()
    said = AboutStreams(now)
    first = record("Throttling for 1 seconds due to an unexpected error: no")
    assert said.filter(first)
    assert first.getMessage() == "geo/quakes: Throttling for 1 seconds due to an unexpected error: no"
    assert not said.filter(record("Throttling for 13 seconds due to an unexpected error: no"))
    assert said.filter(record("Throttling for 1 seconds", k8s_ref={"namespace": "geo", "name": "other"}))
    now.now = 601.0
    assert said.filter(record("Throttling for 34 seconds due to an unexpected error: no"))


def test_that_a_handler_is_called_again_is_no_news():
    assert not AboutStreams().filter(record("Handler 'remove' failed temporarily: what is left is being removed"))


def test_only_mistakes_of_the_operators_own_show_where_they_were_made():
    said = AboutStreams()
    ours, kopfs = record("one", KeyError("x")), record("two", AdmissionError("no"))
    assert said.filter(ours)
    assert said.filter(kopfs)
    assert ours.exc_info is not None
    assert kopfs.exc_info is None


def test_why_kopf_has_failed_as_it_was_ended_is_not_told_by_asyncio_and_all_else_is():
    told = []
    log, unasked = logging.getLogger("asyncio"), Unasked()
    collect = logging.Handler()
    collect.emit = lambda record: told.append(record.exc_info[0] if record.exc_info else None)
    log.addFilter(unasked)
    log.addHandler(collect)

    async def lose(error):
        async def fail():
            raise error

        asyncio.ensure_future(fail())  # noqa: RUF006 (nobody is to ask for it)
        await asyncio.sleep(0)

    try:
        for error in (AdmissionError("no"), KeyError("x")):
            asyncio.run(lose(error))
            gc.collect()
        log.warning("something else")
    finally:
        log.removeFilter(unasked)
        log.removeHandler(collect)

    assert told == [KeyError, None]


def test_what_a_request_bore_is_not_logged():
    """Kopf shows an error as its ``repr``, with the headers of the request that it is about."""

    async def main():
        async with garbled() as url, aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
            await session.get(url)

    with pytest.raises(aiohttp.ClientResponseError) as caught:
        asyncio.run(main())
    said = record(f"Throttling for 1 seconds due to an unexpected error: {caught.value!r}", caught.value)
    assert "secret" in said.getMessage()

    assert AboutStreams().filter(said)
    assert "an unexpected error: ClientResponseError: 400, Bad status line" in said.getMessage()
    assert "secret" not in logging.Formatter().format(said)


def test_what_it_remembers_is_bounded():
    said = AboutStreams()
    for number in range(3000):
        said.filter(record("x", k8s_ref={"namespace": "geo", "name": "s" + chr(97 + number % 26) * (number // 26 + 1)}))
    assert said.remembered <= 1000
