"""The routes. Each names the scopes it takes; one that names none takes nobody."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import anyio
from litestar import Request, delete, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from orchestrator import wire
from orchestrator.api.bodies import NoFields
from orchestrator.api.exchange import HungUp
from orchestrator.api.services import Agents, Handoffs, Services
from orchestrator.domain.errors import Forbidden, InvalidParams, Unauthenticated
from orchestrator.domain.identity import Caller, Scope
from orchestrator.domain.thread import Status

T = TypeVar("T")
HANDOFFS, THREADS, TERMINALS, SERVICE = ["Handoffs"], ["Threads"], ["Terminals"], ["Service"]
Limit = Annotated[int, QueryParameter(ge=1, le=200)]
Offset = Annotated[int, QueryParameter(ge=0)]
HistoryLines = Annotated[int, QueryParameter(ge=0, le=wire.MAX_SCREEN_LINES)]
Cursor = Annotated[str | None, QueryParameter(description="the `next_cursor` of the page before")]


class ApiRequest(Request[Any, Any, State]):
    """A request that the guard has let through."""

    @property
    def caller(self) -> Caller:
        return self.scope["state"]["caller"]

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")

    @property
    def handoffs(self) -> Handoffs:
        services: Services = self.app.state.services
        return services.handoffs

    @property
    def agents(self) -> Agents:
        services: Services = self.app.state.services
        return services.agents


def takes(*scopes: Scope) -> dict[str, Any]:
    return {"scopes": frozenset(scopes)}


EVERYBODY = takes(*Scope)
ACTORS = takes(Scope.PERSON, Scope.AGENT, Scope.TERMINAL)
OUTSIDE = takes(Scope.PERSON, Scope.AGENT)
"""Not the agents in our own terminals: they delegate, and do not steer one another's terminals."""
OPEN = {"open": True}


async def check_scope(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
    """Closed unless the route is open or names the scope of the caller.

    Async like the other check, though nothing here waits: Litestar sends a plain function to a thread.
    """
    if route.opt.get("open"):
        return
    caller: Caller | None = connection.scope["state"].get("caller")
    if caller is None:
        raise Unauthenticated("send a token as Authorization: Bearer <token>")
    if caller.scope not in route.opt.get("scopes", ()):
        raise Forbidden(f"a credential of scope {caller.scope} does not reach this operation")


async def check_query(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
    """A parameter that the route does not know is refused, not ignored."""
    if not connection.scope["query_string"]:
        return
    known = route.parsed_fn_signature.parameters.keys() - connection.path_params.keys() - {"request", "data"}
    for name in connection.query_params.keys() - known:
        raise InvalidParams(
            f"there is no parameter {name[:100]!r} here", path=name[:100], known=sorted(known)
        )


# handoffs


@post("/v1/handoffs", status_code=200, opt=ACTORS, tags=HANDOFFS)
async def start_handoff(request: ApiRequest, data: JSONBody[wire.HandoffRequest]) -> wire.HandoffResult:
    """Hand work to a new agent. Answers at once; with the key of an earlier call, as that call did."""
    return await request.handoffs.start(request.caller, data, request.key)


@get("/v1/handoffs", opt=ACTORS, tags=HANDOFFS)
async def list_handoffs(
    request: ApiRequest,
    status: FromQuery[list[Status] | None] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.HandoffList:
    """The caller's handoffs, newest first."""
    return await request.handoffs.list(request.caller, status, cursor, limit)


@get("/v1/handoffs/{handoff_id:str}", opt=ACTORS, tags=HANDOFFS)
async def get_handoff(request: ApiRequest, handoff_id: FromPath[str]) -> wire.HandoffResult:
    """What there is of it now."""
    return await request.handoffs.result(request.caller, handoff_id)


@post("/v1/handoffs/wait", status_code=200, opt=ACTORS, tags=HANDOFFS)
async def wait_handoffs(request: ApiRequest, data: JSONBody[wire.WaitRequest]) -> wire.WaitResponse:
    """Hang until they are done, or the time is up. Hanging up ends the wait and nothing else."""
    return await while_connected(request, lambda: request.handoffs.wait(request.caller, data))


@post("/v1/handoffs/{handoff_id:str}/stop", status_code=200, opt=ACTORS, tags=HANDOFFS)
async def stop_handoff(
    request: ApiRequest, handoff_id: FromPath[str], data: JSONBody[NoFields]
) -> wire.HandoffResult:
    """End it: a pending one is cancelled, a running one is interrupted."""
    return await request.handoffs.stop(request.caller, handoff_id, request.key)


@post("/v1/handoffs/{handoff_id:str}/complete", status_code=200, opt=ACTORS, tags=HANDOFFS)
async def complete_handoff(
    request: ApiRequest, handoff_id: FromPath[str], data: JSONBody[wire.CompleteRequest]
) -> wire.HandoffResult:
    """Report the result, as the one who does the work."""
    return await request.handoffs.complete(request.caller, handoff_id, data, request.key)


@get("/v1/handoffs/{handoff_id:str}/output", opt=ACTORS, tags=HANDOFFS)
async def read_output(request: ApiRequest, handoff_id: FromPath[str], offset: Offset = 0) -> wire.OutputPage:
    """A page of the whole answer."""
    return await request.handoffs.output(request.caller, handoff_id, offset)


@get("/v1/threads/{thread_id:str}", opt=ACTORS, tags=THREADS)
async def view_thread(request: ApiRequest, thread_id: FromPath[str]) -> wire.ThreadView:
    """The whole record, with its messages and events."""
    return await request.handoffs.thread(request.caller, thread_id)


# terminals, each by its id or by its agent's name


@post("/v1/terminals", status_code=200, opt=OUTSIDE, tags=TERMINALS)
async def start_agent(request: ApiRequest, data: JSONBody[wire.StartAgentRequest]) -> wire.TerminalView:
    """Start a long-lived agent."""
    return await request.agents.start(request.caller, data, request.key)


@get("/v1/terminals", opt=ACTORS, tags=TERMINALS)
async def list_terminals(request: ApiRequest, all: FromQuery[bool] = False) -> wire.TerminalList:
    """The living ones; with `all`, those that have ended too."""
    return await request.agents.list(request.caller, all)


@get("/v1/terminals/{terminal:str}", opt=ACTORS, tags=TERMINALS)
async def get_terminal(request: ApiRequest, terminal: FromPath[str]) -> wire.TerminalView:
    """One terminal and what its agent does."""
    return await request.agents.get(request.caller, terminal)


@delete("/v1/terminals/{terminal:str}", status_code=200, opt=OUTSIDE, tags=TERMINALS)
async def close_terminal(request: ApiRequest, terminal: FromPath[str]) -> wire.TerminalView:
    """End the agent and close its terminal."""
    return await request.agents.close(request.caller, terminal)


@get("/v1/terminals/{terminal:str}/screen", opt=OUTSIDE, tags=TERMINALS)
async def read_screen(
    request: ApiRequest,
    terminal: FromPath[str],
    lines: HistoryLines = 0,
    colours: FromQuery[bool] = False,
) -> wire.ScreenView:
    """The visible screen, with `lines` of history before it."""
    return await request.agents.screen(request.caller, terminal, lines, colours)


@post("/v1/terminals/{terminal:str}/messages", status_code=200, opt=OUTSIDE, tags=TERMINALS)
async def send_text(
    request: ApiRequest, terminal: FromPath[str], data: JSONBody[wire.SendTextRequest]
) -> wire.DeliveryView:
    """Queue a text for the agent; it is typed at the agent's next turn boundary."""
    return await request.agents.send(request.caller, terminal, data, request.key)


@get("/v1/terminals/{terminal:str}/messages", opt=ACTORS, tags=TERMINALS)
async def list_deliveries(request: ApiRequest, terminal: FromPath[str]) -> wire.DeliveryList:
    """The texts queued for the agent and what became of them."""
    return await request.agents.deliveries(request.caller, terminal)


# the service


@get("/v1/profiles", opt=ACTORS, tags=SERVICE)
async def list_profiles(request: ApiRequest) -> wire.ProfileList:
    """The agents that work can be handed to."""
    return await request.agents.profiles(request.caller)


@get("/v1/drivers", opt=OUTSIDE, tags=SERVICE)
async def list_drivers(request: ApiRequest) -> Sequence[wire.DriverView]:
    """The agent programs this service knows, and which of them are installed."""
    return await request.agents.drivers(request.caller)


@get("/v1/service", opt=OUTSIDE, tags=SERVICE)
async def get_service(request: ApiRequest) -> wire.ServiceView:
    """What runs here."""
    return await request.agents.service(request.caller)


@get("/v1/caller", opt=ACTORS, tags=SERVICE)
async def get_caller(request: ApiRequest) -> wire.CallerView:
    """What the token that asks stands for."""
    return await request.agents.caller(request.caller)


@get("/health", opt=OPEN, tags=SERVICE)
async def health(request: ApiRequest) -> dict[str, str]:
    """Whether the service answers. Needs no token."""
    return {"status": "ok", "service": "changeover", "version": request.app.state.version}


ROUTES = [
    start_handoff, list_handoffs, get_handoff, wait_handoffs, stop_handoff, complete_handoff, read_output,
    view_thread, start_agent, list_terminals, get_terminal, close_terminal, read_screen, send_text,
    list_deliveries, list_profiles, list_drivers, get_service, get_caller, health,
]  # fmt: skip


async def while_connected(request: ApiRequest, work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, which is cancelled when the caller hangs up: nothing is told to nobody."""
    result: list[T] = []
    failure: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_hung_up, request, tasks.cancel_scope)
        try:
            result.append(await work())
        except Exception as error:  # kept out of the task group, which would wrap it
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]
    if not result:
        raise HungUp
    return result[0]


async def _hung_up(request: ApiRequest, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
