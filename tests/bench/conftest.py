"""Where measurements go: printed as they are made, and written to `.bench/latest.json` as they are made."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.live import LiveService

LATEST = Path(__file__).parents[2] / ".bench/latest.json"


class Record(Protocol):
    def __call__(self, name: str, value: float, unit: str, bound: float | None = None) -> None:
        """A value that has to be at most its bound; None has none."""


@pytest.fixture(scope="session")
def _results() -> Iterator[list[dict[str, Any]]]:
    results: list[dict[str, Any]] = []
    yield results
    missed = [each["name"] for each in results if not each["holds"]]
    print(f"\n{len(results)} measured, {len(results) - len(missed)} hold; missed: {missed or 'none'}")


@pytest.fixture
def record(_results: list[dict[str, Any]]) -> Record:
    """A miss is shown, and fails nothing: what a clock says on a busy machine is no test."""

    def record(name: str, value: float, unit: str, bound: float | None = None) -> None:
        holds = bound is None or value <= bound
        _results.append(
            {"name": name, "value": round(value, 4), "unit": unit, "bound": bound, "holds": holds}
        )
        LATEST.parent.mkdir(exist_ok=True)
        LATEST.write_text(json.dumps(_results, indent=1) + "\n")
        told = f"  at most {bound:g}: {'holds' if holds else 'MISSED'}" if bound is not None else ""
        print(f"\n{name}: {value:.3f} {unit}{told}", end="", flush=True)

    return record


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., LiveService]]:
    """Starts a service of the test's own, with these environment variables more; it ends with the test."""
    with ExitStack() as stack:

        def serve(**env: str) -> LiveService:
            service: AbstractContextManager[LiveService] = LiveService(tmp_path, env)
            return stack.enter_context(service).start()

        yield serve
