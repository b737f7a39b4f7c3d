"""The lock file agrees with pyproject.toml, is hashed throughout, and names no place to download from."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PINS = [
    Requirement(line.removesuffix("\\").strip())
    for line in LOCK.splitlines()
    if re.match(r"[A-Za-z0-9]", line)
]


def test_every_requirement_of_the_project_is_pinned_within_its_bounds() -> None:
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    wanted += PROJECT["build-system"]["requires"]
    for requirement in map(Requirement, wanted):
        versions = [
            Version(next(iter(pin.specifier)).version)
            for pin in PINS
            if canonicalize_name(pin.name) == canonicalize_name(requirement.name)
        ]
        assert versions, f"run 'make lock': {requirement.name} is not pinned"
        assert all(version in requirement.specifier for version in versions), (
            f"run 'make lock': {requirement}"
        )


def test_every_pin_is_exact_and_hashed() -> None:
    assert all([clause.operator for clause in pin.specifier] == ["=="] for pin in PINS)
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK)
    assert len(blocks) == len(PINS)
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_lock_names_no_place_to_download_from() -> None:
    assert not re.search(r"://|--(?!hash=sha256:)|@ ", LOCK)
