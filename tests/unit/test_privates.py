"""Tests use what a module shows: how often they reach for what is private is counted, and may only become less."""

import ast
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

ACCESSES, PATCHES = 52, 37
"""How many uses of private names there are: whoever removes some lowers the number. For those that are left, no public
behaviour shows what is tested, or the library used shows no more."""

ALLOWED = {"_exit", "_replace", "_asdict", "_fields"}
"""Public names in spite of the underscore: of ``os`` and of named tuples."""


def is_private(name: str) -> bool:
    """Whether a name is private; names such as ``_repr_html_`` are of protocols."""
    return name.startswith("_") and not name.endswith("_") and name not in ALLOWED


def is_own(value: ast.expr) -> bool:
    """Whether an attribute is of the object itself."""
    if isinstance(value, ast.Call):
        value = value.func
        return isinstance(value, ast.Name) and value.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def accesses(tree: ast.AST) -> int:
    """Attributes of other objects, and imported names."""
    nodes = list(ast.walk(tree))
    attributes = [each for each in nodes if isinstance(each, ast.Attribute) and not is_own(each.value)]
    imported = [each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    return sum(map(is_private, [*(each.attr for each in attributes), *imported]))


def patches(tree: ast.AST) -> int:
    """Attributes that ``setattr`` replaces, of a function or of pytest."""
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    names = [
        argument.value.rpartition(".")[2]
        for call in calls
        if isinstance(call.func, ast.Name | ast.Attribute)
        and (call.func.id if isinstance(call.func, ast.Name) else call.func.attr) == "setattr"
        for argument in call.args[:2]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    return sum(map(is_private, names))


@pytest.mark.parametrize(("count", "most"), [(accesses, ACCESSES), (patches, PATCHES)])
def test_tests_reach_for_no_more_private_names(count, most):
    found = Counter({str(path.relative_to(TESTS)): count(ast.parse(path.read_text())) for path in TESTS.rglob("*.py")})

    assert found.total() <= most, found.most_common(10)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a._b", (1, 0)),
        ("self._b.c", (0, 0)),
        ("self.a._b", (1, 0)),
        ("super()._b()", (0, 0)),
        ("a().__class__, a._repr_html_, os._exit", (0, 0)),
        ("from a import _b, c", (1, 0)),
        ("patch.setattr(a, '_B', 1); patch.setattr('a._b.C', 1); patch.setattr('a.b._C', 1)", (0, 2)),
    ],
)
def test_what_is_counted(source, expected):
    tree = ast.parse(source)

    assert (accesses(tree), patches(tree)) == expected
