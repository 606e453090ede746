"""The documentation does what it says: its Python examples run, its commands are commands, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = Sybil(parsers=[PythonCodeBlockParser()])


def names(pages):
    return [page.name for page in pages]


def uses_spark(page):
    return "spatialstream.pipeline" in "".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))


def examples(page):
    return list(EXAMPLES.parse(page))


PAGES_WITH_EXAMPLES = [
    pytest.param(page, id=page.name, marks=pytest.mark.spark if uses_spark(page) else ())
    for page in PAGES
    if examples(page)
]


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in examples(page):
        example.evaluate()


def commands(page):
    """The spatialstream commands of a page's console blocks, lines that end in a backslash joined."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), re.MULTILINE):
            words = shlex.split(line.split("#")[0])
            if words and Path(words[0]).name == "spatialstream":
                yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_are_understood(page):
    from spatialstream.cli import _parser

    for words in commands(page):
        _parser().parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_to_files_lead_to_files(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
