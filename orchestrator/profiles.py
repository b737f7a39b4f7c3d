"""The profile catalogue: finds agent profiles on disk and reads them strictly.

A profile is Markdown with YAML front matter; the body is the system prompt. Files are read anew at every
call, so an edit counts at the next handoff. Nothing here knows which drivers exist: whoever does passes
their names in.
"""

import difflib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from orchestrator.domain.errors import InvalidProfile, UnknownProfile
from orchestrator.domain.profile import NAME_PATTERN, Profile, ProfileEntry, ProfileSource

MAX_BYTES = 1024 * 1024
MAX_NUMBER = 1e9
PROJECT_FOLDER = Path(".changeover") / "profiles"
_KEYS = {field.name: field for field in msgspec.structs.fields(Profile)}
_OTHER_WORDS = {
    "tools": "allowed_tools",
    "allowedtools": "allowed_tools",
    "provider": "driver",
    "cli": "driver",
    "cwd": "working_directory",
    "timeout": "max_duration",
    "prompt": "system_prompt",
}
"""What other tools call our keys, spelled without `_` and `-`; for the suggestion only."""


class Problem(NamedTuple):
    """One thing wrong with a file; `line` counts from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def builtin_folder() -> Path:
    """The profiles that ship with the product; they lie beside this package, in a wheel as in a checkout."""
    return Path(__file__).resolve().parent.parent / "profiles"


def check(path: Path, *, drivers: Collection[str] | None = None) -> list[Problem]:
    """Everything wrong with one file, by line; empty if it is a good profile.

    With `drivers` a driver of another name is a problem too.
    """
    return _read(path, drivers)[1]


class Catalogue:
    """The profiles of one service.

    Searched in order: the projects (`trusted` folders that have `.changeover/profiles`), `user`, `extra`,
    `builtin`. The first folder with a file of a name decides: if that file is broken the name is broken, and
    no later folder is asked.
    """

    def __init__(
        self,
        *,
        trusted: Sequence[Path] = (),
        user: Path | None = None,
        extra: Sequence[Path] = (),
        builtin: Path | None = None,
        drivers: Collection[str] | None = None,
    ) -> None:
        """`builtin` None means the ones that ship with the product."""
        self._trusted = [folder.resolve() for folder in trusted]
        self._rest = [("user", user)] if user else []
        self._rest += [("extra", folder) for folder in extra]
        self._rest += [("built-in", builtin or builtin_folder())]
        self._drivers = drivers
        self._parsed: dict[str, tuple[tuple[int, ...], tuple[Profile | None, list[Problem]]]] = {}

    def get(self, name: str, *, folder: Path | None = None) -> Profile:
        """The profile of that name. Raises `UnknownProfile` or `InvalidProfile`.

        With `folder` only the project it lies in counts; without, every trusted one does.
        """
        files = self._files(folder)
        if name not in files:
            raise _unknown(name, sorted(files))
        source = files[name]
        profile, problems = self._read(source)
        if profile is None or problems:
            shown = [str(problem) for problem in problems]
            detail = f"The profile {name} is broken. " + " ".join(f"{source.path}, {text}" for text in shown)
            raise InvalidProfile(detail, name=name, path=source.path, problems=shown)
        return profile

    def entries(self, *, folder: Path | None = None) -> list[ProfileEntry]:
        """Every name, in alphabetical order, with the file that decides it; broken ones too."""
        return [self._entry(name, source) for name, source in sorted(self._files(folder).items())]

    def _entry(self, name: str, source: ProfileSource) -> ProfileEntry:
        profile, problems = self._read(source)
        shown = [str(problem) for problem in problems]
        return ProfileEntry(name=name, source=source, profile=None if shown else profile, problems=shown)

    def _read(self, source: ProfileSource) -> tuple[Profile | None, list[Problem]]:
        """Parsed anew only when the file has changed: parsing takes over a millisecond of processor time."""
        path = Path(source.path)
        try:
            found = path.stat()
        except OSError:
            return _read(path, self._drivers)
        state = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        known = self._parsed.get(source.path)
        if known is None or known[0] != state:
            known = self._parsed[source.path] = (state, _read(path, self._drivers))
        return known[1]

    def _files(self, folder: Path | None) -> dict[str, ProfileSource]:
        found: dict[str, ProfileSource] = {}
        for kind, place in self._places(folder):
            for path in _markdown(place):
                found.setdefault(path.stem, ProfileSource(kind=kind, path=str(path)))
        return found

    def _places(self, folder: Path | None) -> Iterator[tuple[str, Path]]:
        trusted = self._trusted
        if folder is not None:
            here = folder.resolve()
            around = [place for place in trusted if here.is_relative_to(place)]
            trusted = sorted(around, key=lambda place: len(place.parts), reverse=True)
        yield from (("project", place / PROJECT_FOLDER) for place in trusted)
        yield from self._rest


def _markdown(folder: Path) -> list[Path]:
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return []
    return [p for p in files if p.suffix == ".md" and p.stem.lower() != "readme" and not p.is_dir()]


def _unknown(name: str, known: list[str]) -> UnknownProfile:
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return UnknownProfile(
        f"There is no profile {name!r}.{hint} Known are {', '.join(known) or 'none'}.", name=name, known=known
    )


def _read(path: Path, drivers: Collection[str] | None) -> tuple[Profile | None, list[Problem]]:
    """The profile, or what is wrong; never both, and never neither."""
    text = _text(path)
    if isinstance(text, Problem):
        return None, [text]
    parts = _split(text)
    if isinstance(parts, Problem):
        return None, [parts]
    front, body = parts
    node = _compose(front)
    if isinstance(node, Problem):
        return None, [node]
    problems: list[Problem] = []
    values = _values(node, problems)
    _name(path.stem, values, problems)
    _prompt(body, values, problems)
    _driver(values, drivers, problems)
    if problems:
        return None, sorted(problems)
    return Profile(**{key: value for key, (value, _) in values.items()}), []


def _text(path: Path) -> str | Problem:
    try:
        if path.exists() and not path.is_file():
            return Problem(1, "This is no regular file.")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        return Problem(1, f"The file can't be read: {(error.strerror or str(error)).lower()}.")
    if len(raw) > MAX_BYTES:
        return Problem(1, f"The file is larger than {MAX_BYTES} bytes.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Problem(raw.count(b"\n", 0, error.start) + 1, "This line is not UTF-8.")
    if "\0" in text:
        return Problem(text.count("\n", 0, text.index("\0")) + 1, "This line holds a NUL character.")
    return text.replace("\r\n", "\n")


def _split(text: str) -> tuple[str, str] | Problem:
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Problem(1, "The front matter is missing: the first line must be '---'.")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    return Problem(1, "The front matter has no end: a line '---' is missing after it.")


class _Node(NamedTuple):
    """A YAML node and the line it stands on. A scalar has `text`, a list `items`, a mapping `pairs`."""

    line: int
    tag: str
    text: str = ""
    items: Sequence["_Node"] = ()
    pairs: Sequence[tuple["_Node", "_Node"]] = ()


def _compose(front: str) -> _Node | Problem:
    yaml: Any = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(StringIO(front))
        return _tree(node, set()) if node else _Node(2, "map")
    except MarkedYAMLError as error:
        marked: Any = error
        mark = marked.problem_mark or marked.context_mark
        return Problem(mark.line + 2 if mark else 2, f"This is not YAML: {marked.problem or marked.context}.")
    except (YAMLError, RecursionError) as error:
        return Problem(2, f"This is not YAML: {str(error).splitlines()[0]}.")


def _tree(node: Any, seen: set[int]) -> _Node:
    if id(node) in seen:
        raise YAMLError("aliases are not allowed")
    seen.add(id(node))
    line, tag = node.start_mark.line + 2, str(node.tag).rpartition(":")[2]
    match node.id:
        case "scalar":
            return _Node(line, tag, text=str(node.value))
        case "sequence":
            return _Node(line, tag, items=[_tree(item, seen) for item in node.value])
        case _:
            return _Node(
                line, tag, pairs=[(_tree(key, seen), _tree(value, seen)) for key, value in node.value]
            )


Values = dict[str, tuple[Any, int]]
"""Each key's value and its line."""


def _values(node: _Node, problems: list[Problem]) -> Values:
    values: Values = {}
    if node.tag != "map":
        problems.append(Problem(2, "The front matter must be keys with values, one 'key: value' a line."))
    for key_node, value_node in node.pairs:
        line, key = key_node.line, key_node.text
        if key not in _KEYS:
            problems.append(Problem(line, f"Unknown key '{key}'. {_suggest(key)}"))
        elif key in values:
            problems.append(Problem(line, f"The key '{key}' is there twice, first on line {values[key][1]}."))
        else:
            values[key] = (_value(key, value_node, problems), line)
    return values


def _suggest(key: str) -> str:
    near = difflib.get_close_matches(key.lower(), list(_KEYS), 1)
    word = _OTHER_WORDS.get(re.sub("[-_]", "", key.lower())) or (near[0] if near else None)
    return f"Did you mean '{word}'?" if word else f"Known are {', '.join(_KEYS)}."


def _value(key: str, node: _Node, problems: list[Problem]) -> Any:
    try:
        return msgspec.convert(_plain(node), _KEYS[key].type)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        item = re.match(r"\[(\d+)\]", where)
        culprit = node.items[int(item[1])] if item else node
        problems.append(Problem(culprit.line, f"{key}: {message.replace('`', '')}.{_quotes(message)}"))
    except ValueError as error:
        problems.append(Problem(node.line, f"{key}: {error}."))
    return None


def _quotes(message: str) -> str:
    wants_text = re.match(r"Expected `str[^`]*`, got `(int|float|bool)`", message)
    return " Put it in quotes." if wants_text else ""


def _plain(node: _Node) -> Any:
    """The node as plain data. What looks like a date stays text."""
    match node.tag:
        case "str" | "timestamp":
            return node.text
        case "seq":
            return [_plain(item) for item in node.items]
        case "map":
            return {}
        case "null":
            return None
        case "bool":
            return node.text.lower() == "true"
        case "int" | "float":
            return _number(node.text.replace("_", ""))
        case tag:
            raise ValueError(f"the YAML tag '{tag}' is not allowed")


def _number(text: str) -> float:
    if re.fullmatch(r"[-+]?[0-9]{1,9}", text):
        return int(text)
    number = float(text) if re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", text) else math.inf
    if not abs(number) <= MAX_NUMBER:
        raise ValueError(f"{text} is not a number that can be used here")
    return number


def _name(stem: str, values: Values, problems: list[Problem]) -> None:
    name, line = values.setdefault("name", (stem, 1))
    if not re.match(NAME_PATTERN, stem):
        rule = "letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit"
        problems.append(Problem(1, f"The file's name {stem!r} can't be a profile's name: {rule}."))
    elif name is not None and name != stem:
        problems.append(Problem(line, f"name: {name!r} differs from the file's name {stem!r}."))


def _prompt(body: str, values: Values, problems: list[Problem]) -> None:
    text = body.strip()
    if text and "system_prompt" in values:
        line = values["system_prompt"][1]
        problems.append(Problem(line, "system_prompt: the text below the front matter is the system prompt."))
    elif text:
        values["system_prompt"] = (text, 1)


def _driver(values: Values, drivers: Collection[str] | None, problems: list[Problem]) -> None:
    default = str(_KEYS["driver"].default)
    driver, line = values.get("driver", (default, 1))
    if drivers is not None and driver is not None and driver not in drivers:
        known = ", ".join(sorted(drivers))
        problems.append(Problem(line, f"driver: there is no driver {driver!r}. Known are {known}."))
