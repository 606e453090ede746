"""The documentation does what it says: its Python examples run, its commands are commands, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

import spatialstream
from spatialstream import WGS84
from spatialstream.connectors.folder import Folder
from spatialstream.model import errors
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.stages.archive import write_archive

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = Sybil(parsers=[PythonCodeBlockParser()])


def uses_spark(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return re.search(r"\b(answer|answer_stream|run)\(", "".join(blocks)) is not None


def examples(page):
    return list(EXAMPLES.parse(page))


def run_examples(page):
    for example in examples(page):
        example.evaluate()


WITH_EXAMPLES = [page for page in PAGES if examples(page)]


@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if not uses_spark(page)], ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name == "live.md":
        write_small_archive(tmp_path / "archive")

    run_examples(page)


def write_small_archive(folder):
    """The archive that the page describes, written as the worker writes it."""
    noon = 1_795_262_400_000  # 2026-11-21, 12:00 UTC
    objects = [
        SpatialObject("a", noon, 4.9, 52.4, ("flood", "in", "town")),
        SpatialObject("b", noon + 1_000, 4.5, 51.9, ("flood",)),
        SpatialObject("c", noon + 86_400_000, 13.4, 52.5, ("fire",)),
    ]
    write_archive(ObjectBatch.of(objects), WGS84, Folder(folder), "slot-0000-000000042-000")


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if uses_spark(page)], ids=lambda page: page.name)
def test_examples_with_spark_run(page, tmp_path):
    # in a process of their own, as a reader would run them: they start and end Spark sessions
    done = subprocess.run([sys.executable, "-P", __file__, page], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.spark
def test_the_first_query_of_the_readme_answers_as_it_says(tmp_path):
    text = sections(ROOT / "README.md")["A first query"]
    block, row = re.search(r"```console\n(.*?)```.*?```json\n(.*?)```", text, re.DOTALL).groups()
    script = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    script = script.replace(".venv/bin/spatialstream", f"{shlex.quote(sys.executable)} -P -m spatialstream")

    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout == row


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


def actions_of(command):
    """The long options of a command, and of the commands within it, each with its default."""
    for action in command._actions:
        yield from ((option, action.default) for option in action.option_strings if option[:2] == "--")
        for each in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from actions_of(each)


def number(text):
    """A number as documents write it."""
    return float(text.replace(",", ""))


def test_every_command_has_a_section_with_its_options():
    from spatialstream.cli import parser

    texts = sections(ROOT / "docs" / "cli.md")
    (commands,) = [each for each in parser()._actions if isinstance(each.choices, dict)]
    for name, command in commands.choices.items():
        # the options of both jobs stand with the router
        text = texts[name] + (texts["router"] if name == "worker" else "")
        options = {option for option, _ in actions_of(command)}
        described = set(re.findall(r"--[a-z][a-z-]*", text))
        assert options - described == {"--help"}, name
        mentioned = set(re.findall(r"^\| (`--[^|]*) \|", texts[name], re.MULTILINE))
        assert {option for cell in mentioned for option in re.findall(r"--[a-z][a-z-]*", cell)} <= options, name
        rows = r"^\| `(--[a-z-]+)(?: [^`]*)?` \|[^\n]*\(default ([\d,]+)[);,]"
        said = dict(re.findall(rows, texts[name], re.MULTILINE))
        numbers = {option: default for option, default in actions_of(command) if type(default) in (int, float)}
        wrong = {option: numbers[option] for option in said.keys() & numbers if number(said[option]) != numbers[option]}
        assert wrong == {}, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_to_files(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_from_the_package_itself_alone(page):
    text = page.read_text("utf-8")
    assert not re.findall(r"^.*\b(?:from|import) +spatialstream\..*$", text, re.MULTILINE)
    for names in re.findall(r"\bfrom spatialstream import +([^#\n(]+)", text):
        assert {name.strip() for name in names.split(",")} <= {*spatialstream.__all__}


def test_every_public_name_is_in_the_reference():
    reference = (ROOT / "docs" / "python.md").read_text("utf-8").partition("## Reference")[2]
    described = set(re.findall(r"^\.\. auto(?:class|function):: spatialstream\.(\w+)$", reference, re.MULTILINE))
    constants = {"CLOCK", "WGS84"}
    assert described == {*spatialstream.__all__} - {*errors.__all__} - constants


if __name__ == "__main__":
    run_examples(Path(sys.argv[1]))
