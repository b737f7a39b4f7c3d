"""Settings → a running service: the only place that names adapters and builds everything, in the open."""

import fcntl
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import anyio
import msgspec
import uvicorn
from ulid import ULID

from mcp_tools.http import Mount, mount
from mcp_tools.server import Caller as ToolCaller
from orchestrator.api.app import ApiSettings, create_app
from orchestrator.api.exchange import ASGIApp
from orchestrator.api.log import log_to
from orchestrator.client import Client
from orchestrator.domain.errors import ChangeoverError, Refused
from orchestrator.domain.identity import Principal, PrincipalKind, Scope
from orchestrator.profiles import Catalogue
from orchestrator.services.agents import Agents
from orchestrator.services.bus import Bus
from orchestrator.services.context import Limits, ServiceContext
from orchestrator.services.credentials import Credentials, new_token
from orchestrator.services.fleet import Fleet
from orchestrator.services.handoffs import Handoffs
from orchestrator.services.recovery import keep_up, recover
from orchestrator.settings import Settings
from orchestrator.store.sql import SqlStore
from orchestrator.terminals.driver import Driver
from orchestrator.terminals.drivers.claude_code import ClaudeCode
from orchestrator.terminals.drivers.scripted import Scripted
from orchestrator.terminals.drivers.shell import Shell
from orchestrator.terminals.tmux_terminals import TmuxTerminals
from orchestrator.wire import ServiceView

OWNER = Principal(kind=PrincipalKind.PERSON, id="owner")
OWNERS_AGENT = Principal(kind=PrincipalKind.AGENT, id="owner")

log = logging.getLogger("changeover")


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class UlidIds:
    def new(self, prefix: str) -> str:
        return f"{prefix}_{str(ULID()).lower()}"


class ServiceSet(msgspec.Struct, frozen=True, kw_only=True):
    """What the API is served from."""

    handoffs: Handoffs
    agents: Agents
    credentials: Credentials


def drivers() -> Mapping[str, Driver]:
    known: list[Driver] = [ClaudeCode(), Scripted(), Shell()]
    return {driver.name: driver for driver in known}


async def serve(settings: Settings, *, end_agents: bool = False, verbose: bool = False) -> None:
    """Runs the service until SIGINT or SIGTERM. Agents stay, and are adopted at the next start.

    With `end_agents` they are ended instead, and their handoffs with them. Raises `ChangeoverError` when the
    home is in use, the address is taken or the store cannot be opened.
    """
    settings.ensure_home()
    _clean_environment()
    try:
        with log_to(sys.stderr, logging.DEBUG if verbose else logging.INFO):
            await _serve(settings, end_agents)
    except BaseExceptionGroup as group:
        expected = group.subgroup(ChangeoverError)
        while isinstance(expected, BaseExceptionGroup):
            expected = expected.exceptions[0]
        if expected is None:
            raise
        raise expected from None


async def _serve(settings: Settings, end_agents: bool) -> None:
    with _hold_home(settings), _listen(settings) as listening:
        host, port = listening.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        async with _running(settings, url) as (app, stop, fleet):
            server = _Server(
                uvicorn.Config(
                    app,
                    log_config=None,
                    access_log=False,
                    lifespan="on",
                    ws="none",
                    server_header=False,
                    timeout_graceful_shutdown=max(1, int(settings.shutdown_grace)),
                ),
                lambda: _announce(settings, url),
            )

            async def until_signal() -> None:
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    async for received in signals:
                        log.info("stopping", extra={"fields": {"signal": signal.Signals(received).name}})
                        if end_agents:
                            await fleet.end_all()
                        stop()
                        server.should_exit = True

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(until_signal)
                await server.serve(sockets=[listening])
                tasks.cancel_scope.cancel()
            settings.service_file.unlink(missing_ok=True)
            if not server.started:
                raise ChangeoverError("the HTTP server did not start; its log says why")


class _Server(uvicorn.Server):
    """Signals are ours to receive; `announce` is called once it answers."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def _announce(settings: Settings, url: str) -> None:
    """Says where the service is: to clients by a file, to people by the log."""
    service = {"url": url, "pid": os.getpid()}
    _write_private(settings.service_file, json.dumps(service))
    log.info("ready", extra={"fields": service})


@asynccontextmanager
async def _running(settings: Settings, url: str) -> AsyncGenerator[tuple[ASGIApp, "_Stop", Fleet]]:
    """The service with everything open; what was opened last is closed first."""
    async with AsyncExitStack() as stack:
        store = SqlStore(settings.database)
        await store.open()
        stack.push_async_callback(store.close)
        terminals = TmuxTerminals(settings.home, drivers(), dict(os.environ))
        await stack.enter_async_context(terminals.running())
        bus = Bus()
        store.subscribe(bus.publish)
        clock, ids = SystemClock(), UlidIds()
        credentials = Credentials(store, clock, ids)
        await credentials.ensure(_token(settings.person_token_file), Scope.PERSON, OWNER)
        await credentials.ensure(_token(settings.agent_token_file), Scope.AGENT, OWNERS_AGENT)
        context = ServiceContext(
            store=store,
            terminals=terminals,
            profiles=_catalogue(settings),
            clock=clock,
            ids=ids,
            bus=bus,
            credentials=credentials,
            limits=Limits(
                max_depth=settings.max_depth,
                max_terminals=settings.max_terminals,
                max_terminals_per_caller=settings.max_terminals_per_caller,
                roots=settings.roots,
            ),
            instance=_instance(settings),
            url=url,
        )
        keepers = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(keepers.cancel_scope.cancel)
        fleet = Fleet(context, keepers)
        await recover(context, fleet)
        keepers.start_soon(keep_up, context)
        app, tools = _application(settings, context, fleet)
        yield app, _Stop(bus, tools), fleet


class _Stop:
    """Ends every wait, so that the server can finish what it answers."""

    def __init__(self, bus: Bus, tools: Mount) -> None:
        self._bus = bus
        self._tools = tools

    def __call__(self) -> None:
        self._bus.stop()
        self._tools.stop()


def _application(settings: Settings, context: ServiceContext, fleet: Fleet) -> tuple[ASGIApp, Mount]:
    view = ServiceView(
        version=version("changeover"),
        instance=context.instance,
        home=str(settings.home),
        url=context.url,
        database=settings.database,
        pid=os.getpid(),
        terminals=0,
        max_terminals=settings.max_terminals,
    )
    services = ServiceSet(
        handoffs=Handoffs(context, fleet),
        agents=Agents(context, fleet, view),
        credentials=context.credentials,
    )

    def client_for(token: str | None, session: str | None) -> Client:
        return Client.in_process(app, token or "", session=session)

    async def is_terminal(caller: ToolCaller) -> bool:
        return context.credentials.is_terminal(caller.headers.get("authorization", "").partition(" ")[2])

    tools = mount(
        client_for,
        working_directory_enabled=settings.enable_working_directory,
        version=version("changeover"),
        is_terminal=is_terminal,
    )
    app = create_app(
        services,
        ApiSettings(
            extra_hosts=frozenset(settings.extra_hosts),
            max_body_bytes=settings.max_body_bytes,
            version=version("changeover"),
        ),
        mounts={"/mcp": tools},
        lifespan=[tools.run()],
    )
    return app, tools


def _catalogue(settings: Settings) -> Catalogue:
    return Catalogue(
        trusted=settings.trusted_folders,
        user=settings.user_profiles,
        extra=settings.profile_paths,
        drivers=drivers().keys(),
    )


@contextmanager
def _hold_home(settings: Settings) -> Generator[None]:
    """One service a home: the second one learns where the first is."""
    with settings.lock_file.open("a") as lock:
        settings.lock_file.chmod(0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = "an address it has not announced yet"
            with suppress(OSError, ValueError, KeyError):
                where = json.loads(settings.service_file.read_text())["url"]
            raise Refused(
                f"a service already runs on the home {settings.home}, at {where}: use it, stop it, or set"
                " CHANGEOVER_HOME to another folder",
                url=where,
            ) from None
        settings.service_file.unlink(missing_ok=True)
        yield


@contextmanager
def _listen(settings: Settings) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With its protocol said: without it asyncio leaves Nagle's delay on, 44 ms a reply as measured.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            _bind(listening, settings)
        except OSError as error:
            raise Refused(
                f"the service cannot listen on {settings.host}:{settings.port}: {error.strerror};"
                " set CHANGEOVER_PORT to another port, or to 0 for any free one",
                port=settings.port,
            ) from error
        listening.listen(2048)
        yield listening


def _bind(listening: socket.socket, settings: Settings) -> None:
    """A home that takes any free port keeps the one it had: its living agents look for the service there."""
    kept = settings.home / "port"
    if settings.port == 0:
        with suppress(OSError, ValueError, OverflowError):
            listening.bind((settings.host, int(kept.read_text())))
            return
    listening.bind((settings.host, settings.port))
    if settings.port == 0:
        _write_private(kept, str(listening.getsockname()[1]))


def _clean_environment() -> None:
    """Takes from this process what would make tmux and its library speak to another tmux, or not in UTF-8."""
    for name in ("TMUX", "TMUX_PANE", "LC_CTYPE", "LC_MESSAGES"):
        os.environ.pop(name, None)
    os.environ["LC_ALL"] = "C.UTF-8"


def _token(path: Path) -> str:
    """The token kept in this file; made at the first start."""
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    token = new_token()
    _write_private(path, token + "\n")
    return token


def _instance(settings: Settings) -> str:
    path = settings.home / "instance"
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    instance = UlidIds().new("svc")
    _write_private(path, instance + "\n")
    return instance


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner only."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
