"""The settings of the service and of its clients: one frozen record, and the only reader of the environment.

A value comes from a flag, else the environment, else `config.toml` in the home, else `config.toml` in the
user's configuration folder, else the default. Every wrong value is an `InvalidParams` that names the setting,
where the value came from and what is allowed. Nothing here opens a socket or a database.
"""

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec
import platformdirs

from orchestrator.domain.errors import ChangeoverError, InvalidParams

CONFIG_NAME = "config.toml"
DEFAULT_PORT = 7413


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a service or a client runs with. Durations are seconds, folders absolute.

    Only `home` has no default here; `load` fills the rest from where the user said it. `sources` names for
    each setting where its value came from: `flag`, `environment NAME`, `file PATH` or `default`.
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 takes any free port."""
    database: str = ""
    """A `sqlite:///` URL with an absolute path; by default `changeover.db` in the home."""
    url: str | None = None
    """Where clients find the service; without it the home says (`service_file`)."""
    token: str | None = None
    enable_working_directory: bool = False
    """Whether the MCP tools of this server take `working_directory`."""
    max_depth: int = 8
    max_terminals: int = 24
    max_terminals_per_caller: int = 0
    """By default as many as `max_terminals`."""
    roots: tuple[Path, ...] = ()
    """A given working directory must lie under one of these."""
    trusted_folders: tuple[Path, ...] = ()
    """Folders whose own `.changeover/profiles` count."""
    profile_paths: tuple[Path, ...] = ()
    extra_hosts: tuple[str, ...] = ()
    """Names beside the loopback ones that a request's Host and Origin may carry."""
    max_body_bytes: int = 8 * 1024 * 1024
    shutdown_grace: float = 8.0
    config_dir: Path = Path()
    """The user's configuration folder; not a setting, known from the system."""
    sources: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not self.database:
            msgspec.structs.force_setattr(self, "database", f"sqlite:///{self.home / 'changeover.db'}")
        if not self.max_terminals_per_caller:
            msgspec.structs.force_setattr(self, "max_terminals_per_caller", self.max_terminals)

    def __repr__(self) -> str:
        """Like any record's, but the token stays unsaid: settings end up in logs."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "sources"}
        shown["token"] = "***" if self.token else None
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def database_path(self) -> Path:
        return Path(self.database.removeprefix("sqlite:///"))

    @property
    def run_dir(self) -> Path:
        """Sockets and the terminals' folders."""
        return self.home / "run"

    @property
    def lock_file(self) -> Path:
        return self.home / "service.lock"

    @property
    def service_file(self) -> Path:
        """`{"url", "pid"}` of the service that holds this home."""
        return self.home / "service.json"

    @property
    def log_file(self) -> Path:
        """Where a service started in the background writes."""
        return self.home / "service.log"

    @property
    def person_token_file(self) -> Path:
        return self.home / "person.token"

    @property
    def agent_token_file(self) -> Path:
        return self.home / "agent.token"

    @property
    def config_file(self) -> Path:
        return self.home / CONFIG_NAME

    @property
    def user_profiles(self) -> Path:
        return self.config_dir / "profiles"

    def ensure_home(self) -> None:
        """Makes the home, for its owner alone (0700). One that is in use and open to others is refused."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.home.stat().st_mode)
            if mode & 0o077 and not any(self.home.iterdir()) and not mode & stat.S_ISVTX:
                self.home.chmod(0o700)
                mode = 0o700
        except OSError as error:
            raise _wrong(
                "home", self.sources.get("home", "default"), str(self.home), _reason(error)
            ) from None
        if mode & 0o077:
            detail = (
                f"The home {self.home} is open to other users (mode {mode:04o}). Run: chmod 700 {self.home}"
            )
            raise InvalidParams(detail, path="home")


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """One raw value, where it came from, and the folder that relative paths in it start at."""

    value: Any
    source: str
    base: Path
    user_home: Path


class _Wrong(Exception):
    """What is allowed, as the end of the sentence 'allowed is …'."""


Parser: TypeAlias = Callable[[_Given], Any]


def _text(given: _Given) -> str:
    if not isinstance(given.value, str) or not given.value or not given.value.isprintable():
        raise _Wrong("a text of one line")
    return given.value


def _boolean(given: _Given) -> bool:
    if isinstance(given.value, bool):
        return given.value
    words = {"true": True, "1": True, "false": False, "0": False}
    if not isinstance(given.value, str) or given.value.lower() not in words:
        raise _Wrong("true or false")
    return words[given.value.lower()]


def _integer(low: int, high: int) -> Parser:
    def parse(given: _Given) -> int:
        value = given.value
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _Wrong(f"a whole number from {low} to {high}")
        return value

    return parse


def _seconds(low: float, high: float) -> Parser:
    def parse(given: _Given) -> float:
        value = given.value
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise _Wrong(f"seconds from {low:g} to {high:g}")
        return float(value)

    return parse


def _folder(given: _Given) -> Path:
    value = os.fspath(given.value) if isinstance(given.value, str | Path) else ""
    if not value or "\0" in value:
        raise _Wrong("a path")
    if value == "~" or value.startswith("~/"):
        value = str(given.user_home / value[2:])
    return Path(os.path.normpath(given.base / value))


def _many(given: _Given, separator: str) -> list[_Given]:
    value = given.value
    if isinstance(value, str):
        value = [part for part in value.split(separator) if part]
    if not isinstance(value, list | tuple):
        raise _Wrong("a list")
    return [msgspec.structs.replace(given, value=item) for item in value]  # pyright: ignore[reportUnknownVariableType]


def _folders(given: _Given) -> tuple[Path, ...]:
    return tuple(_folder(item) for item in _many(given, os.pathsep))


def _hosts(given: _Given) -> tuple[str, ...]:
    hosts = tuple(str(item.value).strip().lower() for item in _many(given, ","))
    if not all(re.fullmatch(r"[a-z0-9.-]+|\[[0-9a-f:]+\]", host) for host in hosts):
        raise _Wrong("host names without scheme and port")
    return hosts


def _url(given: _Given) -> str:
    allowed = "an address such as http://127.0.0.1:7413"
    value = _text(given)
    try:
        parts = urlsplit(value)
        fine = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise _Wrong(allowed)
    return value.rstrip("/")


def _database(given: _Given) -> str:
    value = given.value
    if isinstance(value, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", value):
        parts = urlsplit(value)
        if parts.scheme != "sqlite":
            raise _Wrong("a file or sqlite:///FILE: this version supports SQLite only")
        if parts.netloc or not value.startswith("sqlite:///") or parts.query or parts.fragment:
            raise _Wrong(
                "sqlite:///FILE, with three slashes before a relative and four before an absolute path"
            )
        value = unquote(parts.path[1:])
        if value in {"", ":memory:"}:
            raise _Wrong("a file: a database in memory would lose the record")
        given = msgspec.structs.replace(given, value=value)
    return f"sqlite:///{_folder(given)}"


_PARSERS: dict[str, Parser] = {
    "home": _folder,
    "host": _text,
    "port": _integer(0, 65535),
    "database": _database,
    "url": _url,
    "token": _text,
    "enable_working_directory": _boolean,
    "max_depth": _integer(1, 100),
    "max_terminals": _integer(1, 1000),
    "max_terminals_per_caller": _integer(1, 1000),
    "roots": _folders,
    "trusted_folders": _folders,
    "profile_paths": _folders,
    "extra_hosts": _hosts,
    "max_body_bytes": _integer(64 * 1024, 1024 * 1024 * 1024),
    "shutdown_grace": _seconds(0.1, 600),
}
_ALIASES = {"enable_working_directory": ["CAO_ENABLE_WORKING_DIRECTORY"]}


def environment_names(setting: str) -> list[str]:
    """The variables that carry a setting, the strongest first. An empty variable counts as absent."""
    return [f"CHANGEOVER_{setting.upper()}", *_ALIASES.get(setting, [])]


def load(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    cwd: Path | None = None,
    config_dir: Path | None = None,
) -> Settings:
    """Reads every setting and touches nothing but the two configuration files. A flag of None was not given.

    `cwd` is where relative paths of flags and environment start, and by default the process's own;
    `config_dir` is the user's configuration folder, by default the system's.
    """
    here = cwd or Path.cwd()
    user_home = Path(environ.get("HOME") or Path.home())
    config = config_dir or platformdirs.user_config_path("changeover")
    unknown = set(flags) - set(_PARSERS)
    if unknown:
        raise TypeError(f"no such settings: {sorted(unknown)}")

    layers = [_from_flags(flags, here, user_home), _from_environment(environ, here, user_home)]
    user_file = _from_file(config / CONFIG_NAME, user_home, may_move_home=True)
    home = _first("home", [*layers, user_file])
    folder: Path = _parse("home", home) if home else platformdirs.user_data_path("changeover")
    if folder != config:
        layers.append(_from_file(folder / CONFIG_NAME, user_home, may_move_home=False))
    layers.append(user_file)

    values: dict[str, Any] = {"home": folder, "roots": (user_home, here)}
    sources: dict[str, str] = {}
    for name in _PARSERS:
        given = _first(name, layers)
        sources[name] = given.source if given else "default"
        if given:
            values[name] = _parse(name, given)
    return Settings(**values, config_dir=config, sources=sources)


def _first(name: str, layers: list[dict[str, _Given]]) -> _Given | None:
    return next((layer[name] for layer in layers if name in layer), None)


def _parse(name: str, given: _Given) -> Any:
    try:
        return _PARSERS[name](given)
    except _Wrong as wrong:
        raise _wrong(name, given.source, given.value, f"allowed is {wrong}") from None


def _wrong(name: str, source: str, value: Any, reason: str) -> InvalidParams:
    shown = "its value" if name == "token" else repr(value)
    return InvalidParams(
        f"The setting {name} (from {source}) is wrong: {shown}; {reason}.", path=name, source=source
    )


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _from_flags(flags: Mapping[str, Any], here: Path, user_home: Path) -> dict[str, _Given]:
    return {
        name: _Given(value=value, source="flag", base=here, user_home=user_home)
        for name, value in flags.items()
        if value is not None
    }


def _from_environment(environ: Mapping[str, str], here: Path, user_home: Path) -> dict[str, _Given]:
    layer: dict[str, _Given] = {}
    for name in _PARSERS:
        for variable in environment_names(name):
            if name not in layer and environ.get(variable):
                source = f"environment {variable}"
                layer[name] = _Given(value=environ[variable], source=source, base=here, user_home=user_home)
    return layer


def _from_file(path: Path, user_home: Path, *, may_move_home: bool) -> dict[str, _Given]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise InvalidParams(f"The file {path} can't be read: {reason}", path=str(path)) from None
    known = [name for name in _PARSERS if name != "home" or may_move_home]
    for name in table:
        if name not in known:
            raise _unknown_key(name, path, known)
    source = f"file {path}"
    return {
        name: _Given(value=value, source=source, base=path.parent, user_home=user_home)
        for name, value in table.items()
    }


def _unknown_key(name: str, path: Path, known: list[str]) -> ChangeoverError:
    if name == "home":
        return InvalidParams(f"The file {path} lies in the home and can't move it: remove 'home'.", path=name)
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean '{near[0]}'?" if near else f" Known are {', '.join(known)}."
    return InvalidParams(
        f"The file {path} has an unknown setting '{name}'.{hint}", path=name, source=f"file {path}"
    )
