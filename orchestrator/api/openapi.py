"""The OpenAPI document, at /schema and below as JSON and YAML; no page of it needs anything from elsewhere.

Litestar writes it from the routes. What it does not know is added here: that requests are closed to unknown
fields, the shape of problems, the idempotency key, and an example of each body.
"""

import copy
from functools import cache
from typing import Any

import msgspec
from litestar import Request, Router
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from orchestrator import wire
from orchestrator.api.examples import EXAMPLES
from orchestrator.api.problems import MEDIA_TYPE

TITLE = "Changeover"
DESCRIPTION = "The service through which coding agents hand work to one another."
KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A repeated request with the same key has the effect and the answer of the first one.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
"""On every POST but the wait, which changes nothing."""


class Json(JsonRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, finished(openapi_schema))  # pyright: ignore[reportUnknownMemberType]


class Yaml(YamlRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, finished(openapi_schema))  # pyright: ignore[reportUnknownMemberType]


def openapi_config(version: str) -> OpenAPIConfig:
    return OpenAPIConfig(
        title=TITLE,
        version=version,
        description=DESCRIPTION,
        use_handler_docstrings=True,
        operation_id_creator=lambda handler, method, path: handler.handler_name,
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        openapi_router=Router(
            "/schema", route_handlers=[], opt={"open": True}, include_in_schema=False, dto=None
        ),
        render_plugins=[Json(path=["/", "/openapi.json"]), Yaml()],
    )


def finished(document: dict[str, Any]) -> dict[str, Any]:
    """The document with problems, keys and examples; the one given is left as it is."""
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    schemas |= _problem_schemas()
    for name, example in _examples().items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    for kind in wire.Request.__subclasses__():
        if kind.__name__ in schemas:
            schemas[kind.__name__]["additionalProperties"] = False
    document["paths"]["/health"]["get"]["security"] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            responses = operation["responses"]
            operation["responses"] = {"200": responses["200"], "default": _problem_response()}
            if method == "post" and path != "/v1/handoffs/wait":
                operation.setdefault("parameters", []).append(KEY_PARAMETER)
    return document


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "The request failed.", "content": {MEDIA_TYPE: {"schema": schema}}}


@cache
def _problem_schemas() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components([wire.Problem], ref_template="#/components/schemas/{name}")
    return dict(schemas)


@cache
def _examples() -> dict[str, Any]:
    return {type(example).__name__: msgspec.to_builtins(example) for example in EXAMPLES}
