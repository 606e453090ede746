"""Modules as one script: what each exports is where it is imported, and nothing else is changed."""

import re
from pathlib import Path

import pytest

from spatialstream.report import page
from spatialstream.report.modules import inlined


@pytest.fixture
def written(tmp_path):
    def write(**modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.js").write_text(text)
        return inlined(tmp_path / "page.js")

    return write


def test_each_module_is_there_once_before_those_that_import_it(written):
    text = written(
        page='import { a } from "./a.js";\nimport { b, c } from "./b.js";\nb(a, c);\n',
        a='import { c } from "./b.js";\n\nconst own = 1;\nexport const a = c + own;\n',
        b="// Both need it.\nconst own = 2;\nexport function b() {}\nexport async function d() {}\nexport class c {}\n",
    )

    assert text.splitlines() == [
        "const module0_b = (() => {",
        "// Both need it.",
        "const own = 2;",
        "function b() {}",
        "async function d() {}",
        "class c {}",
        "return { b, d, c };",
        "})();",
        "",
        "const module1_a = (() => {",
        "const { c } = module0_b;",
        "",
        "const own = 1;",
        "const a = c + own;",
        "return { a };",
        "})();",
        "",
        "const module2_page = (() => {",
        "const { a } = module1_a;",
        "const { b, c } = module0_b;",
        "b(a, c);",
        "})();",
    ]


@pytest.mark.parametrize(
    "other",
    [
        'import * as a from "./a.js";',
        'import a from "./a.js";',
        'import { a as b } from "./a.js";',
        'import { a } from "https://example.org/a.js";',
        'import "./a.js";',
        "export default 1;",
        'export * from "./a.js";',
        "export let a = 1;",
        'const text = "</SCRIPT>";',
    ],
)
def test_what_could_not_stand_in_a_script_is_refused(written, other):
    with pytest.raises(ValueError, match=re.escape(other)):
        written(page=f"{other}\n", a="export const a = 1;\n")


def test_modules_that_import_each_other_are_refused(written):
    with pytest.raises(ValueError, match=r"page\.js imports itself"):
        written(page='import { a } from "./a.js";\n', a='import { b } from "./page.js";\n')


def test_a_module_that_is_not_there_is_an_error(written):
    with pytest.raises(FileNotFoundError):
        written(page='import { a } from "./a.js";\n')


def test_the_page_of_a_run_has_the_map_of_the_console_in_it():
    text = inlined(Path(page.__file__).parent / "page.js")

    assert text.count("class CanvasMap") == 1
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
