"""What is said of errors: what has happened, and nothing of what was sent."""

import asyncio

import aiohttp
import pytest

from spatialstream_operator.causes import cause, without_login
from tests.unit.operator.garbled import garbled

SECRET = "eyJhbGciOi"


def failure(answer, **request):
    async def main():
        async with garbled(answer) as url, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError) as caught:
                await session.get(url, **request)
            return caught.value

    return asyncio.run(main())


def test_what_a_request_bore_is_not_told():
    headers = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET}
    error = failure(b"\x15\x03\x01\x00\x02\x02\x46", headers=headers)

    assert SECRET in repr(error)  # which is why
    assert SECRET not in cause(error)
    assert cause(error).startswith("ClientResponseError: 400, Bad status line: ")
    assert "\n" not in cause(error)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError(), "TimeoutError"),
        (KeyError("status"), "KeyError: 'status'"),
        (OSError(2, "No such file", "/token"), "FileNotFoundError: [Errno 2] No such file: '/token'"),
        (UnicodeDecodeError("utf-8", b"\xff" + SECRET.encode(), 0, 1, "invalid"), "UnicodeDecodeError: 'utf-8' codec"),
        (aiohttp.InvalidURL(f"http://me:{SECRET}@:x"), "InvalidURL: http://:x"),
    ],
)
def test_other_errors_are_told_in_their_own_words(error, told):
    assert cause(error).startswith(told)
    assert SECRET not in cause(error)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("https://me:word@prometheus:9090/a@b", "https://prometheus:9090/a@b"),
        ("https://me:w@rd@prometheus", "https://prometheus"),
        ("https://prometheus/a?b=//c@d", "https://prometheus/a?b=//c@d"),
        ("at http://me:word@one and http://two, for me@three", "at http://one and http://two, for me@three"),
    ],
)
def test_a_url_is_told_without_a_login(url, told):
    assert without_login(url) == told
