"""What a profile file may say, what a wrong one is told, and which of several files counts."""

import shutil
import string
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import InvalidProfile, UnknownProfile
from orchestrator.domain.profile import Completion, OnTimeout, Profile
from orchestrator.profiles import Catalogue, Problem, builtin_folder, check

BUILT_IN = {"supervisor", "developer", "reviewer", "tester", "scripted", "shell"}


def write(folder: Path, name: str, front: str = "", body: str = "", *, raw: bytes | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_bytes(raw if raw is not None else f"---\n{front}\n---\n{body}".encode())
    return path


def test_every_key_of_a_profile_can_be_said(tmp_path: Path) -> None:
    write(
        tmp_path,
        "coder",
        """name: coder
description: Writes code.
driver: shell
model: "4"
allowed_tools: [Read, "Bash(git diff:*)"]
command: [bash, --norc]
env:
  - API_KEY
working_directory: /srv
completion: report
on_timeout: stop
max_duration: 3600
start_timeout: 2.5
mcp: false""",
        "\nYou write code.\n\n---\n\nReally.\n",
    )
    assert Catalogue(builtin=tmp_path).get("coder") == Profile(
        name="coder",
        description="Writes code.",
        driver="shell",
        system_prompt="You write code.\n\n---\n\nReally.",
        model="4",
        allowed_tools=["Read", "Bash(git diff:*)"],
        command=["bash", "--norc"],
        env=["API_KEY"],
        working_directory="/srv",
        completion=Completion.REPORT,
        on_timeout=OnTimeout.STOP,
        max_duration=3600.0,
        start_timeout=2.5,
        mcp=False,
    )


def test_nothing_need_be_said_but_the_front_matters_marks(tmp_path: Path) -> None:
    write(tmp_path, "bare", raw=b"---\r\n---\r\nBe brief.\r\n")
    assert Catalogue(builtin=tmp_path).get("bare") == Profile(name="bare", system_prompt="Be brief.")


@pytest.mark.parametrize(
    ("raw", "line", "words"),
    [
        (b"", 1, "front matter is missing"),
        (b"You are an agent.\n", 1, "front matter is missing"),
        (b"---\nname: bad\n", 1, "front matter has no end"),
        (b"---\n- a\n---\n", 2, "must be keys with values"),
        (b"---\nname: bad\n  driver: x\n---\n", 3, "not YAML"),
        (b"---\nname: 'bad\n---\n", 2, "not YAML"),
        (b"---\nmodel: a\nmodle: b\n---\n", 3, "Unknown key 'modle'. Did you mean 'model'?"),
        (b"---\nallowedTools: [a]\n---\n", 2, "Did you mean 'allowed_tools'?"),
        (b"---\nprovider: claude_code\n---\n", 2, "Did you mean 'driver'?"),
        (b"---\nzzz: 1\n---\n", 2, "Known are name, description"),
        (b"---\nmodel: a\n\n# twice\nmodel: b\n---\n", 5, "'model' is there twice, first on line 2"),
        (b"---\nname: other\n---\n", 2, "differs from the file's name"),
        (b"---\nmodel: 4.5\n---\n", 2, "Expected str | null, got float. Put it in quotes."),
        (b"---\nmcp: maybe\n---\n", 2, "Expected bool"),
        (b"---\nenv:\n  - A\n  - 3\n---\n", 4, "env: Expected str, got int"),
        (b"---\ncommand: []\n---\n", 2, "length >= 1"),
        (b"---\ncommand: bash -l\n---\n", 2, "Expected array | null, got str"),
        (b"---\nmax_duration: 0\n---\n", 2, "> 0"),
        (b"---\nmax_duration: .inf\n---\n", 2, "not a number that can be used"),
        (b"---\nmax_duration: 1e300\n---\n", 2, "not a number that can be used"),
        (b"---\non_timeout: kill\n---\n", 2, "Invalid enum value"),
        (b"---\nmodel: !!python/none x\n---\n", 2, "tag"),
        (b"---\nenv: &a [*a]\n---\n", 2, "aliases are not allowed"),
        (b"---\nsystem_prompt: one\n---\ntwo", 2, "the text below the front matter"),
        (b"---\nname: bad\n---\nfine\ncaf\xe9\n", 5, "not UTF-8"),
        (b"---\nname: bad\n---\nfine\n\0\n", 5, "NUL"),
    ],
)
def test_a_wrong_file_is_told_what_and_on_which_line(
    tmp_path: Path, raw: bytes, line: int, words: str
) -> None:
    problems = check(write(tmp_path, "bad", raw=raw))
    assert [problem.line for problem in problems] == [line]
    assert words in problems[0].message


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "bad", "modle: a\nmcp: 3\ndriver: clawde", "text")
    assert [problem.line for problem in check(path, drivers=["claude_code"])] == [2, 3, 4]
    assert check(path, drivers=["claude_code"])[2] == Problem(
        4, "driver: there is no driver 'clawde'. Known are claude_code."
    )


def test_a_file_whose_name_can_not_be_a_profiles_is_a_problem(tmp_path: Path) -> None:
    assert "can't be a profile's name" in check(write(tmp_path, "two words"))[0].message


def test_a_file_that_is_not_there_or_too_large_is_a_problem(tmp_path: Path) -> None:
    assert "no such file" in check(tmp_path / "none.md")[0].message
    assert "larger than" in check(write(tmp_path, "big", body="x" * (1 << 20)))[0].message


@pytest.mark.promise("profile-search")
def test_the_project_comes_first_then_the_user_the_extra_paths_and_the_built_in(tmp_path: Path) -> None:
    project, user, extra, builtin = (tmp_path / name for name in ("project", "user", "extra", "builtin"))
    places = [
        ("project", project / ".changeover/profiles"),
        ("user", user),
        ("extra", extra),
        ("built-in", builtin),
    ]
    catalogue = Catalogue(trusted=[project], user=user, extra=[extra], builtin=builtin)
    for kind, folder in reversed(places):
        write(folder, "dev", f"description: {kind}")
        assert catalogue.get("dev").description == kind
        assert [entry.source.kind for entry in catalogue.entries()] == [kind]


@pytest.mark.promise("profile-search")
def test_a_project_counts_only_when_trusted_and_only_for_work_in_it(tmp_path: Path) -> None:
    trusted, stranger = tmp_path / "trusted", tmp_path / "stranger"
    for folder in (trusted, stranger):
        write(folder / ".changeover/profiles", "dev", f"description: {folder.name}")
    catalogue = Catalogue(trusted=[trusted], builtin=tmp_path / "none")

    assert catalogue.get("dev", folder=trusted / "deep" / "down").description == "trusted"
    for folder in (stranger, tmp_path, tmp_path / "trusted-not"):
        with pytest.raises(UnknownProfile):
            catalogue.get("dev", folder=folder)


def test_the_nearest_of_nested_projects_wins(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    for folder in (outer, inner):
        write(folder / ".changeover/profiles", "dev", f"description: {folder.name}")
    catalogue = Catalogue(trusted=[outer, inner], builtin=tmp_path / "none")
    assert catalogue.get("dev", folder=inner).description == "inner"
    assert catalogue.get("dev", folder=outer).description == "outer"


@pytest.mark.promise("profile-poison")
def test_a_broken_file_poisons_its_name_and_no_other(tmp_path: Path) -> None:
    user, builtin = tmp_path / "user", tmp_path / "builtin"
    broken = write(user, "dev", "modle: x")
    write(builtin, "dev", "description: good")
    write(builtin, "ops", "description: good")
    catalogue = Catalogue(user=user, builtin=builtin)

    with pytest.raises(InvalidProfile) as caught:
        catalogue.get("dev")
    assert str(broken) in caught.value.detail
    assert caught.value.facts["problems"] == ["line 2: Unknown key 'modle'. Did you mean 'model'?"]
    assert catalogue.get("ops").description == "good"
    entry = next(entry for entry in catalogue.entries() if entry.name == "dev")
    assert entry.profile is None
    assert entry.problems == caught.value.facts["problems"]


def test_a_link_to_nowhere_poisons_its_name_too(tmp_path: Path) -> None:
    (tmp_path / "dev.md").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidProfile):
        Catalogue(builtin=tmp_path).get("dev")


@pytest.mark.promise("unknown-profile")
def test_an_unknown_name_is_told_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path, "developer")
    write(tmp_path, "ops")
    with pytest.raises(UnknownProfile, match=r"Did you mean developer\?") as caught:
        Catalogue(builtin=tmp_path).get("develper")
    assert caught.value.facts == {"name": "develper", "known": ["developer", "ops"]}


@pytest.mark.parametrize(
    "name", ["", "../developer", "/etc/passwd", "developer.md", "Developer", "developer\0"]
)
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(UnknownProfile):
        Catalogue().get(name)


def test_an_edit_counts_at_once(tmp_path: Path) -> None:
    catalogue = Catalogue(builtin=tmp_path)
    for text in ("one", "two"):
        write(tmp_path, "dev", body=text)
        assert catalogue.get("dev").system_prompt == text


@pytest.mark.promise("profiles-built-in")
def test_the_built_in_profiles_are_good_and_say_how_to_hand_work_on() -> None:
    entries = {entry.name: entry for entry in Catalogue().entries()}
    assert set(entries) == BUILT_IN
    for name, entry in entries.items():
        assert entry.problems == []
        assert entry.profile
        assert entry.profile.description
        expected = name if name in {"scripted", "shell"} else "claude_code"
        assert entry.profile.driver == expected
        if expected == "claude_code":
            assert all(tool in entry.profile.system_prompt for tool in ("handoff", "assign", "wait_handoff"))


def test_the_wheel_carries_the_built_in_profiles(tmp_path: Path) -> None:
    root = builtin_folder().parent
    for name in ("orchestrator", "mcp_tools", "profiles"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp_path)
    code = "from hatchling.build import build_wheel; print(build_wheel('dist'))"
    (tmp_path / "dist").mkdir()
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    wheel = zipfile.ZipFile(tmp_path / "dist" / built.stdout.split()[-1])
    assert {f"profiles/{name}.md" for name in BUILT_IN} <= set(wheel.namelist())

    wheel.extractall(tmp_path / "site")
    code = (
        "from orchestrator.profiles import Catalogue; print(*[e.source.path for e in Catalogue().entries()])"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); {code}"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == sorted(
        str(tmp_path / "site" / "profiles" / f"{name}.md") for name in BUILT_IN
    )


@given(raw=st.binary(max_size=200) | st.text(string.printable, max_size=200).map(str.encode))
def test_any_bytes_give_a_profile_or_problems_with_lines_of_the_file(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.md"
    for content in (raw, b"---\n" + raw + b"\n---\n", b"---\nenv: " + raw + b"\n---\n"):
        path.write_bytes(content)
        lines = content.count(b"\n") + 1
        assert all(1 <= problem.line <= lines and problem.message for problem in check(path))
