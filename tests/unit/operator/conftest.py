"""What the tests of the operator's shell share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def heard() -> Iterator[None]:
    """The operator's loggers speak, even if a tool that another test has run in this process has silenced them."""
    loggers = [
        each
        for name, each in logging.Logger.manager.loggerDict.items()
        if name.startswith("spatialstream_operator") and isinstance(each, logging.Logger)
    ]
    before = [each.disabled for each in loggers]
    for each in loggers:
        each.disabled = False
    yield
    for each, disabled in zip(loggers, before, strict=True):
        each.disabled = disabled
