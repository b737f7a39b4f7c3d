"""Where an agent works: which folder of several, and whether it may."""

from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from orchestrator.domain.errors import InvalidParams


async def working_directory(
    *,
    given: str | None,
    terminal: str | None,
    caller: str | None,
    profile: str | None,
    roots: Sequence[Path],
    trusted_caller: bool,
) -> str:
    """The folder, absolute and with links resolved.

    The first there is: the given one, the caller terminal's, the command line's or stdio server's, the
    profile's. A given one, and that of a caller who is not the person (`trusted_caller`), must lie under an
    allowed root. Raises `InvalidParams` where there is none, or it does not exist, or is not allowed.
    """
    check = given is not None or (terminal is None and caller is not None and not trusted_caller)
    chosen = next((each for each in (given, terminal, caller, profile) if each is not None), None)
    if chosen is None:
        raise InvalidParams(
            "no working directory: the caller has none and the profile names none; set working_directory"
            " in the profile, or give one",
            path="working_directory",
        )
    return await anyio.to_thread.run_sync(_resolved, chosen, tuple(roots) if check else None)


def _resolved(chosen: str, roots: tuple[Path, ...] | None) -> str:
    path = Path(chosen).expanduser()
    if "\0" in chosen or not path.is_absolute():
        raise InvalidParams(
            f"the working directory {chosen!r} is not an absolute path", path="working_directory"
        )
    if not path.is_dir():
        raise InvalidParams(f"the working directory {chosen} does not exist", path="working_directory")
    resolved = path.resolve()
    if roots is not None and not any(resolved.is_relative_to(root.resolve()) for root in roots):
        allowed = ", ".join(str(root) for root in roots) or "none"
        raise InvalidParams(
            f"the working directory {chosen} lies under no allowed root (allowed: {allowed});"
            " the owner of the service can add one with CHANGEOVER_ROOTS",
            path="working_directory",
        )
    return str(resolved)
