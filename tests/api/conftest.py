"""One server for a module's tests, in a thread of its own, as a client on the network meets it."""

import io
import logging
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest

from orchestrator.api.app import ApiSettings, create_app
from orchestrator.api.log import log_to
from tests.api.fake import TOKENS, Loopback, Services, serving

LIMIT = 8 * 1024 * 1024


async def mounted(scope: Any, receive: Any, send: Any) -> None:
    """A mounted application that tells what it was given."""
    message = await receive()
    caller = scope["state"]["caller"]
    text = f"{scope['path']} {scope['root_path']} {caller.principal} {len(message['body'])}"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text.encode()})


class Running:
    """The server as its tests see it."""

    def __init__(self, services: Services, server: Loopback) -> None:
        self.services, self.url, self.port = services, server.url, server.port


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    services = Services()
    settings = ApiSettings(extra_hosts=frozenset({"box.example"}), max_body_bytes=LIMIT, version="9.9")
    app = create_app(services, settings, mounts={"/mounted": mounted})
    ready: list[Running] = []
    started, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(app) as server:
            ready.append(Running(services, server))
            started.set()
            await anyio.to_thread.run_sync(over.wait)

    thread = threading.Thread(target=anyio.run, args=(serve,))
    thread.start()
    assert started.wait(10)
    yield ready[0]
    over.set()
    thread.join(10)


@pytest.fixture(scope="module")
def http(running: Running) -> Iterator[httpx2.Client]:
    """A person's requests."""
    headers = {"Authorization": f"Bearer {TOKENS['person']}"}
    with httpx2.Client(base_url=running.url, headers=headers, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def stranger(running: Running) -> Iterator[httpx2.Client]:
    """Requests without a token."""
    with httpx2.Client(base_url=running.url, trust_env=False) as client:
        yield client


class Log(io.StringIO):
    @property
    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    """What the service logs meanwhile, debugging included."""
    stream = Log()
    with log_to(stream, logging.DEBUG):
        yield stream
