"""Where a setting may come from, which source wins, and what a wrong one is told."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import InvalidParams
from orchestrator.settings import Settings, environment_names, load


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def read(home: Path, **environ: str) -> Settings:
    return load({"home": home}, environ, cwd=home.parent, config_dir=home.parent / "config")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_anything_said_the_defaults_hold(home: Path) -> None:
    settings = read(home, HOME="/people/ann")

    assert (settings.host, settings.port) == ("127.0.0.1", 7413)
    assert settings.database_path == home / "changeover.db"
    assert settings.roots == (Path("/people/ann"), home.parent)
    assert (settings.max_depth, settings.max_terminals, settings.max_terminals_per_caller) == (8, 24, 24)
    assert settings.enable_working_directory is False
    assert settings.sources["home"] == "flag"
    assert settings.sources["port"] == "default"
    assert not home.exists()


def test_a_flag_beats_the_environment_beats_the_homes_file_beats_the_users(home: Path) -> None:
    users = write(
        home.parent / "config" / "config.toml", "port = 1\nmax_depth = 2\nhost = '::1'\nmax_terminals = 5"
    )
    homes = write(home / "config.toml", "port = 11\nmax_depth = 12\nhost = '::2'")
    environ = {"CHANGEOVER_PORT": "21", "CHANGEOVER_MAX_DEPTH": "22"}

    settings = load({"home": home, "port": 31, "host": None}, environ, config_dir=users.parent)

    assert (settings.port, settings.max_depth, settings.host, settings.max_terminals) == (31, 22, "::2", 5)
    assert settings.sources["port"] == "flag"
    assert settings.sources["max_depth"] == "environment CHANGEOVER_MAX_DEPTH"
    assert settings.sources["host"] == f"file {homes}"
    assert settings.sources["max_terminals"] == f"file {users}"


def test_the_users_file_may_move_the_home_and_the_homes_file_may_not(home: Path) -> None:
    config = write(home.parent / "config" / "config.toml", "home = '../home'").parent
    assert load({}, {}, config_dir=config).home == home

    write(home / "config.toml", "home = '/elsewhere'")
    with pytest.raises(InvalidParams, match="can't move it"):
        load({}, {}, config_dir=config)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("CHANGEOVER_PORT", "74l3", "a whole number from 0 to 65535"),
        ("CHANGEOVER_PORT", "65536", "a whole number from 0 to 65535"),
        ("CHANGEOVER_PORT", "-1", "a whole number from 0 to 65535"),
        ("CHANGEOVER_MAX_DEPTH", "0", "a whole number from 1 to 100"),
        ("CHANGEOVER_MAX_TERMINALS", "1e3", "a whole number from 1 to 1000"),
        ("CHANGEOVER_ENABLE_WORKING_DIRECTORY", "yes", "true or false"),
        ("CAO_ENABLE_WORKING_DIRECTORY", "2", "true or false"),
        ("CHANGEOVER_SHUTDOWN_GRACE", "nan", "seconds from 0.1 to 600"),
        ("CHANGEOVER_URL", "127.0.0.1:7413", "an address such as http"),
        ("CHANGEOVER_URL", "ftp://127.0.0.1", "an address such as http"),
        ("CHANGEOVER_EXTRA_HOSTS", "https://example.org", "host names without scheme and port"),
        ("CHANGEOVER_DATABASE", "postgresql://db/changeover", "this version supports SQLite only"),
        ("CHANGEOVER_DATABASE", "sqlite://file.db", "three slashes"),
        ("CHANGEOVER_DATABASE", "sqlite:///:memory:", "a file"),
    ],
)
def test_a_wrong_value_names_the_setting_its_source_and_what_is_allowed(
    home: Path, variable: str, value: str, allowed: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        read(home, **{variable: value})

    setting = variable.partition("_")[2].lower()
    assert setting in caught.value.detail
    assert f"environment {variable}" in caught.value.detail
    assert allowed in caught.value.detail
    assert caught.value.facts["path"] == setting


@pytest.mark.parametrize(
    "text", ["port = '7413 '", "port = true", "port = 74.13", "roots = 3", "host = ['a']"]
)
def test_a_wrong_type_in_the_file_is_refused(home: Path, text: str) -> None:
    path = write(home / "config.toml", text)
    with pytest.raises(InvalidParams, match="allowed is") as caught:
        read(home)
    assert str(path) in caught.value.detail


def test_an_unknown_key_in_the_file_is_refused_with_a_suggestion(home: Path) -> None:
    write(home / "config.toml", "max_terminal = 3")
    with pytest.raises(
        InvalidParams, match=r"unknown setting 'max_terminal'\. Did you mean 'max_terminals'\?"
    ):
        read(home)


def test_a_file_that_is_not_toml_is_refused(home: Path) -> None:
    write(home / "config.toml", "port: 7413")
    with pytest.raises(InvalidParams, match=r"config\.toml can't be read"):
        read(home)


def test_an_empty_variable_counts_as_absent(home: Path) -> None:
    assert read(home, CHANGEOVER_PORT="", CHANGEOVER_ROOTS="").sources["port"] == "default"


@pytest.mark.parametrize(("own", "alias", "expected"), [("", "true", True), ("false", "true", False)])
def test_the_other_projects_name_for_the_working_directory_switch_is_an_alias(
    home: Path, own: str, alias: str, expected: bool
) -> None:
    settings = read(home, CHANGEOVER_ENABLE_WORKING_DIRECTORY=own, CAO_ENABLE_WORKING_DIRECTORY=alias)
    assert settings.enable_working_directory is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("other.db", "{here}/other.db"),
        ("~/other.db", "/people/ann/other.db"),
        ("sqlite:///other.db", "{here}/other.db"),
        ("sqlite:////data/other.db", "/data/other.db"),
    ],
)
def test_the_database_is_a_file_or_an_sqlite_address(home: Path, value: str, expected: str) -> None:
    settings = read(home, CHANGEOVER_DATABASE=value, HOME="/people/ann")
    assert str(settings.database_path) == expected.format(here=home.parent)
    assert settings.database == f"sqlite:///{settings.database_path}"


def test_paths_in_a_file_start_at_that_files_folder(home: Path) -> None:
    write(home / "config.toml", "profile_paths = ['mine', '/theirs']")
    assert read(home).profile_paths == (home / "mine", Path("/theirs"))


def test_lists_in_the_environment_are_split_as_paths_are(home: Path) -> None:
    settings = read(
        home, CHANGEOVER_ROOTS=os.pathsep.join(["/a", "b"]), CHANGEOVER_EXTRA_HOSTS="One.example,two"
    )
    assert settings.roots == (Path("/a"), home.parent / "b")
    assert settings.extra_hosts == ("one.example", "two")


def test_the_token_is_never_shown(home: Path) -> None:
    assert "s3cret" not in repr(read(home, CHANGEOVER_TOKEN="s3cret"))
    with pytest.raises(InvalidParams) as caught:
        read(home, CHANGEOVER_TOKEN="s3cret\n")
    assert "s3cret" not in caught.value.detail


def test_the_home_is_made_for_its_owner_alone(home: Path) -> None:
    read(home).ensure_home()
    assert home.stat().st_mode & 0o777 == 0o700


def test_an_empty_open_home_is_closed_and_a_used_one_is_refused(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    read(home).ensure_home()
    assert home.stat().st_mode & 0o777 == 0o700

    (home / "something").touch()
    home.chmod(0o755)
    with pytest.raises(InvalidParams, match="chmod 700"):
        read(home).ensure_home()
    assert home.stat().st_mode & 0o777 == 0o755


def test_a_home_that_can_not_be_made_is_an_error_in_words(home: Path) -> None:
    home.parent.joinpath("file").touch()
    with pytest.raises(InvalidParams, match=r"home \(from flag\) is wrong"):
        read(home.parent / "file" / "home").ensure_home()


@given(name=st.sampled_from(sorted(Settings(home=Path("/")).__struct_fields__)), value=st.text(max_size=30))
def test_any_text_in_the_environment_gives_settings_or_an_error_in_words(name: str, value: str) -> None:
    environ = {environment_names(name)[0]: value, "CHANGEOVER_HOME": "/nowhere"}
    with contextlib.suppress(InvalidParams):
        assert isinstance(load({}, environ, config_dir=Path("/nowhere/config")), Settings)


@given(number=st.integers(-10, 70000))
def test_a_port_is_accepted_exactly_in_its_range(number: int) -> None:
    flags = {"home": "/nowhere", "port": number}
    if 0 <= number <= 65535:
        assert load(flags, {}).port == number
    else:
        with pytest.raises(InvalidParams):
            load(flags, {})
