"""The OpenAPI document: complete, sound, and with an example of each body that is what it says."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import yaml
from jsonschema import Draft202012Validator

from orchestrator.api.rest import ROUTES

METHODS = {"get", "post", "delete", "put", "patch"}


@pytest.fixture(scope="module")
def document(stranger: httpx2.Client) -> dict[str, Any]:
    return stranger.get("/schema/openapi.json").json()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(node: Any) -> Iterator[str]:
    for name, value in node.items() if isinstance(node, dict) else enumerate(node):
        if name == "$ref":
            yield value
        elif isinstance(value, dict | list):
            yield from references(value)


def test_the_document_has_every_route_under_its_own_name(document: dict[str, Any]) -> None:
    told = {(path, method, operation["operationId"]) for path, method, operation in operations(document)}
    routes = {
        (path.replace(":str", ""), method.lower(), route.handler_name)
        for route in ROUTES
        for path in route.paths
        for method in route.http_methods
    }
    assert told == routes
    assert len({name for _, _, name in told}) == len(ROUTES)


def test_the_document_is_sound(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["info"] == {
        "title": "Changeover",
        "version": "9.9",
        "description": "The service through which coding agents hand work to one another.",
    }
    schemas = document["components"]["schemas"]
    assert {f"#/components/schemas/{name}" for name in schemas} >= set(references(document))
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    for path, method, operation in operations(document):
        assert method in METHODS
        assert operation["description"]
        named = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert set(operation["responses"]) == {"200", "default"}
        assert ("requestBody" in operation) == (method == "post")


def test_each_body_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    shown = {name for name, schema in schemas.items() if schema.get("examples")}
    objects = {name for name, schema in schemas.items() if schema.get("properties")}
    assert shown == objects
    for name in shown:
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(whole).validate(schemas[name]["examples"][0])


def test_requests_refuse_unknown_fields_in_the_document_too(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for path, method, operation in operations(document):
        if method == "post":
            body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            assert schemas[body.split("/")[-1]]["additionalProperties"] is False, path


def test_everything_but_health_asks_for_the_token(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    asked = {
        path: operation.get("security", document["security"]) for path, _, operation in operations(document)
    }
    assert [path for path, security in asked.items() if security != [{"token": []}]] == ["/health"]


def test_the_document_is_the_same_as_json_as_yaml_and_at_its_root(
    document: dict[str, Any], stranger: httpx2.Client
) -> None:
    assert stranger.get("/schema").json() == document
    assert yaml.safe_load(stranger.get("/schema/openapi.yaml").text) == document


@pytest.mark.parametrize("page", ["redoc", "swagger", "elements", "rapidoc", "scalar", "x/y"])
def test_no_page_of_it_loads_anything_from_elsewhere(page: str, stranger: httpx2.Client) -> None:
    reply = stranger.get(f"/schema/{page}")
    assert reply.status_code == 404
    assert "http" not in reply.text.replace("http-equiv", "")
