"""The quick start as a test reads it: nothing is overlooked, and every command that is followed is a command."""

from __future__ import annotations

import re

from spatialstream.cli import parser
from tests.quickstart import PAGE, Step, adapted, skipped, steps

NAMES = {"stream": "quick", "namespace": "spaces", "system": "operators", "seconds": 40}


def test_every_line_with_a_prompt_is_a_step() -> None:
    assert len(steps()) == len(re.findall(r"^\$ ", PAGE.read_text("utf-8"), re.MULTILINE)) > 20
    assert not any("\\" in step.line for step in steps())
    assert [step.section for step in steps() if "spatialstream load" in step.line] == ["Send", "Send"]


def test_what_is_followed_names_no_other_stream_nor_namespace() -> None:
    for step in steps():
        if skipped(step) is None:
            words = adapted(step, **NAMES)
            parts = {part for word in words for part in (word, *re.split(r"[-/.: ]", word))}
            assert not parts & {"quakes", "geo", "spatialstream-system", "--watch"}, words
            assert words[0] in ("kubectl", "spatialstream")


def test_commands_of_this_program_are_understood_as_they_are_followed() -> None:
    followed = [adapted(step, **NAMES) for step in steps() if skipped(step) is None]
    starts = [("spatialstream" if words[0] == "spatialstream" else "--", words) for words in followed]
    own = [words[words.index(start) + 1 :] for start, words in starts if start in words]
    own = [words[1:] if words[0] == "spatialstream" else words for words in own]

    assert {words[0] for words in own} == {"status", "load", "query", "results", "tree", "rebalance"}
    for words in own:
        # in the pods the environment says which stream it is
        parser().parse_args([*words, "--stream", "quick"] if words[0] == "load" else words)


def test_a_command_that_lasts_is_given_an_end() -> None:
    assert adapted(Step("", "kubectl --namespace geo get sps --watch"), **NAMES) == [
        *("kubectl", "--namespace", "spaces", "wait", "sps/quick", "--for=condition=Ready", "--timeout=300s")
    ]
    assert adapted(Step("", "spatialstream status quakes --namespace geo --watch"), **NAMES)[-1] == "spaces"
