"""The way from a command to the service: where it is, which token opens it, and starting one if asked to."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from orchestrator.cli import background
from orchestrator.client import Client
from orchestrator.domain.errors import Unavailable
from orchestrator.settings import Settings

T = TypeVar("T")


class ServiceFile(msgspec.Struct):
    """What a running service leaves in its home."""

    url: str
    pid: int


def ask(settings: Settings, act: Callable[[Client], Awaitable[T]], *, start: bool = False) -> T:
    """Runs `act` with a client, after starting a service if `start` says so and none answers."""

    async def run() -> T:
        if start and not await answers(settings):
            await background.start(settings, lambda: answers(settings))
        async with connect(settings) as client:
            return await act(client)

    return anyio.run(run)


def connect(settings: Settings) -> Client:
    """A client, not yet entered, for the person whose home this is."""
    url, token = where(settings, settings.person_token_file)
    return Client(url, token, session=session_id(settings))


def where(settings: Settings, token_file: Path) -> tuple[str, str | None]:
    """The service's address, and the token of the settings, else the one in the home's file.

    A token of the home is never sent to an address that is not its own service's. Raises `Unavailable`, with
    how to start a service, if no address is known.
    """
    known = service_file(settings)
    url = settings.url or (known.url.rstrip("/") if known else None)
    if url is None:
        raise no_service(settings)
    ours = known is not None and known.url.rstrip("/") == url
    return url, settings.token or (read_token(token_file) if ours else None)


def service_file(settings: Settings) -> ServiceFile | None:
    try:
        return msgspec.json.decode(settings.service_file.read_bytes(), type=ServiceFile)
    except (OSError, msgspec.MsgspecError):
        return None


def read_token(path: Path) -> str | None:
    try:
        return path.read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None


def session_id(settings: Settings) -> str:
    """One per home, so that a repeated command is the same session's."""
    return "cli-" + hashlib.sha256(str(settings.home).encode("utf-8", "surrogateescape")).hexdigest()[:20]


async def answers(settings: Settings) -> bool:
    """Whether a service answers where the settings say."""
    try:
        async with connect(settings) as client:
            await client.health()
    except Unavailable:
        return False
    return True


def no_service(settings: Settings) -> Unavailable:
    return Unavailable(
        f"No service runs for the home {settings.home}. Start one with `changeover serve`, "
        "or let `changeover handoff --start` do it.",
        home=str(settings.home),
    )
