"""The HTTP application: the guard, behind it the routes and whatever is mounted beside them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from orchestrator.api.bodies import StrictBody
from orchestrator.api.exchange import HUNG_UP, ASGIApp, HungUp, Receive, Scope, Send, log_failure
from orchestrator.api.guard import Guard, GuardSettings
from orchestrator.api.openapi import openapi_config
from orchestrator.api.problems import MEDIA_TYPE, from_framework, problem
from orchestrator.api.rest import ROUTES, ApiRequest, check_query, check_scope
from orchestrator.api.services import Services


class ApiSettings(GuardSettings, frozen=True, kw_only=True):
    """`version` is what /health and the OpenAPI document say."""

    version: str = "0"


Lifespan = Callable[[Litestar], AbstractAsyncContextManager[Any]] | AbstractAsyncContextManager[Any]


def create_app(
    services: Services,
    settings: ApiSettings,
    mounts: Mapping[str, ASGIApp] | None = None,
    lifespan: Sequence[Lifespan] = (),
) -> ASGIApp:
    """The whole application. `mounts` are ASGI applications by path, each behind the guard like the routes.

    A mounted application sees its path whole, with the mount's in `root_path`, and in `scope["state"]` the
    `caller` and `token`. `lifespan` contexts are open while the application runs.
    """
    handlers: dict[int | type[Exception], Any] = {Exception: _reply_to}
    routes = Litestar(
        ROUTES,
        debug=False,
        dto=StrictBody,
        exception_handlers=handlers,
        guards=[check_scope, check_query],
        lifespan=list(lifespan),
        logging_config=None,
        openapi_config=openapi_config(settings.version),
        request_class=ApiRequest,
        request_max_body_size=None,
        return_dto=None,
        state=State({"services": services, "version": settings.version}),
    )
    app = _mounted(cast("ASGIApp", routes), mounts or {})
    return Guard(app, services.credentials.authenticate, settings)


def _reply_to(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    if isinstance(error, HungUp):
        return Response(b"", status_code=HUNG_UP)
    expected = from_framework(error) if isinstance(error, HTTPException) else error
    request_id: str = request.scope["state"]["request_id"]
    log_failure(expected, request_id)
    reply = problem(expected, request_id)
    return Response(reply.body, status_code=reply.status, headers=reply.headers, media_type=MEDIA_TYPE)


def _mounted(routes: ASGIApp, mounts: Mapping[str, ASGIApp]) -> ASGIApp:
    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        for path, app in mounts.items():
            if scope["type"] != "lifespan" and f"{scope['path']}/".startswith(f"{path.rstrip('/')}/"):
                await app({**scope, "root_path": scope.get("root_path", "") + path}, receive, send)
                return
        await routes(scope, receive, send)

    return dispatch
