"""The documentation does what it says: its Python examples run, its commands are commands, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = Sybil(parsers=[PythonCodeBlockParser()])


def uses_spark(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return re.search(r"^(import spatialstream$|from spatialstream import)", "".join(blocks), re.MULTILINE) is not None


def examples(page):
    return list(EXAMPLES.parse(page))


def run_examples(page):
    for example in examples(page):
        example.evaluate()


WITH_EXAMPLES = [page for page in PAGES if examples(page)]


@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if not uses_spark(page)], ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    run_examples(page)


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if uses_spark(page)], ids=lambda page: page.name)
def test_examples_with_spark_run(page, tmp_path):
    # in a process of their own, as a reader would run them: they start and end Spark sessions
    done = subprocess.run([sys.executable, "-P", __file__, page], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def commands(page):
    """The spatialstream commands of a page's console blocks, lines that end in a backslash joined."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), re.MULTILINE):
            words = shlex.split(line.split("#")[0])
            if words and Path(words[0]).name == "spatialstream":
                yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page):
    from spatialstream.cli import parser

    for words in commands(page):
        parser().parse_args(words)


def sections(page):
    """The sections of a page by their headings of the second level."""
    return dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL))


def test_every_command_has_a_section_with_its_options():
    from spatialstream.cli import parser

    texts = sections(ROOT / "docs" / "cli.md")
    (commands,) = [each for each in parser()._actions if isinstance(each.choices, dict)]
    for name, command in commands.choices.items():
        # the options of both jobs stand with the router
        text = texts[name] + (texts["router"] if name == "worker" else "")
        options = {option for action in command._actions for option in action.option_strings if option[:2] == "--"}
        described = set(re.findall(r"--[a-z][a-z-]*", text))
        assert options - described == {"--help"}, name
        mentioned = set(re.findall(r"^\| (`--[^|]*) \|", texts[name], re.MULTILINE))
        assert {option for cell in mentioned for option in re.findall(r"--[a-z][a-z-]*", cell)} <= options, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_to_files(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


if __name__ == "__main__":
    run_examples(Path(sys.argv[1]))
