"""Each promise of `promises.toml` has a test, and each mark on a test names a promise.

The marks are read from the source of the tests, so a test that is not collected here counts as well.
"""

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def manifest() -> tuple[dict[str, str], set[str]]:
    """The sentence of each promise, and those that stand as open."""
    tables = tomllib.loads((HERE / "promises.toml").read_text("utf-8"))
    still_open = set(tables.pop("unproven")["open"])
    return {name: sentence for table in tables.values() for name, sentence in table.items()}, still_open


def marked(source: str) -> dict[str, list[str]]:
    """Promise → the tests under a `pytest.mark.promise(…)`, as names within the module."""
    found: dict[str, list[str]] = defaultdict(list)

    def visit(node: ast.AST, name: str, inherited: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            inside = f"{name}::{child.name}" if name else child.name
            promises = inherited + tuple(_promises(child.decorator_list))
            if isinstance(child, ast.ClassDef):
                visit(child, inside, promises + _pytestmark(child.body))
            elif child.name.startswith("test_"):
                for promise in promises:
                    found[promise].append(inside)

    tree = ast.parse(source)
    visit(tree, "", _pytestmark(tree.body))
    return found


def _pytestmark(body: list[ast.stmt]) -> tuple[str, ...]:
    values = [
        statement.value
        for statement in body
        if isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets)
    ]
    return tuple(_promises(values))


def _promises(nodes: list[ast.expr]) -> list[str]:
    """The ids in every `….mark.promise("…")` within the expressions, `pytest.param(marks=…)` included."""
    return [
        str(argument.value)
        for node in nodes
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "promise"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]


def proofs() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(HERE.rglob("test_*.py")):
        for promise, names in marked(path.read_text("utf-8")).items():
            found[promise] += [f"{path.relative_to(HERE.parent)}::{name}" for name in names]
    return found


def test_every_promise_has_a_test() -> None:
    promises, still_open = manifest()
    tests = proofs()
    missing = [
        f"{name}: {text}" for name, text in promises.items() if name not in tests and name not in still_open
    ]
    assert not missing, "no test is marked for\n" + "\n".join(missing)


def test_every_mark_names_a_promise() -> None:
    promises, _ = manifest()
    strange = {name: tests for name, tests in proofs().items() if name not in promises}
    assert not strange, f"marks that promises.toml does not know: {strange}"


def test_what_is_proven_is_not_listed_as_open() -> None:
    promises, still_open = manifest()
    assert still_open <= set(promises), f"open, but no promise: {still_open - set(promises)}"
    proven = still_open & set(proofs())
    assert not proven, f"remove from 'open', a test proves them: {sorted(proven)}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.promise('A1')\ndef test_a(): ...", {"A1": ["test_a"]}),
        ("@pytest.mark.promise('A1', 'A2')\nasync def test_a(): ...", {"A1": ["test_a"], "A2": ["test_a"]}),
        (
            "pytestmark = [pytest.mark.anyio, pytest.mark.promise('A1')]\ndef test_a(): ...",
            {"A1": ["test_a"]},
        ),
        ("@mark.promise('A1')\nclass TestB:\n  def test_a(self): ...", {"A1": ["TestB::test_a"]}),
        ("@parametrize('x', [param(1, marks=mark.promise('A1'))])\ndef test_a(x): ...", {"A1": ["test_a"]}),
        ("@pytest.mark.promise('A1')\ndef helper(): ...", {}),
        ("def test_a():\n  '''promise A1'''", {}),
    ],
)
def test_marks_are_found_where_they_are_written(source: str, expected: dict[str, list[str]]) -> None:
    assert marked(source) == expected
