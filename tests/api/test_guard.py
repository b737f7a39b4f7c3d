"""Who gets through: Host, Origin, token, scope; at the routes, at unknown paths and at what is mounted."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest

from orchestrator import wire
from orchestrator.api.app import ApiSettings, create_app
from orchestrator.api.rest import ROUTES
from orchestrator.domain.identity import Scope
from tests.api.conftest import Log, Running
from tests.api.fake import TOKENS, Services, serving

BEHIND = ["/v1/handoffs", "/v1/service", "/mounted", "/mounted/deeper", "/nowhere", "/", "/v1/../v1/handoffs"]


def code(reply: httpx2.Response) -> tuple[int, str]:
    assert reply.headers["content-type"] == "application/problem+json"
    problem = wire.Problem(**reply.json())
    assert problem.request_id == reply.headers["x-request-id"]
    return reply.status_code, problem.code


@pytest.mark.promise("G3")
@pytest.mark.parametrize("path", [*BEHIND, "/health", "/schema"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.", "localhost@evil.example",
     "127.0.0.1:80:80", "box.example.evil.example", "0.0.0.0", ""],
)  # fmt: skip
def test_a_foreign_host_is_refused_everywhere(
    host: str, path: str, http: httpx2.Client, running: Running
) -> None:
    reply = http.get(path, headers={"Host": host.format(port=running.port)})
    assert code(reply) == (421, "forbidden")


@pytest.mark.promise("G3")
@pytest.mark.parametrize("path", ["/v1/handoffs", "/mounted"])
@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:1", "LocalHost:65535", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:8080",
     "box.example", "box.example:8080"],
)  # fmt: skip
def test_loopback_names_with_any_port_and_the_configured_hosts_get_through(
    host: str, path: str, http: httpx2.Client
) -> None:
    assert http.get(path, headers={"Host": host}).status_code == 200


@pytest.mark.promise("G3")
@pytest.mark.parametrize("path", [*BEHIND, "/health"])
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://evil.example:80", "null", "file://", "https://localhost.evil.example",
     "http://localhost/..@evil.example", "chrome-extension://localhost", ""],
)  # fmt: skip
def test_a_foreign_origin_is_refused_everywhere(origin: str, path: str, http: httpx2.Client) -> None:
    assert code(http.get(path, headers={"Origin": origin})) == (403, "forbidden")


@pytest.mark.parametrize(
    "origin", ["http://localhost:5000", "http://127.0.0.1", "https://[::1]:1", "http://box.example"]
)
def test_pages_of_this_machine_and_of_the_configured_hosts_may_ask(origin: str, http: httpx2.Client) -> None:
    assert http.get("/v1/handoffs", headers={"Origin": origin}).status_code == 200


@pytest.mark.promise("G3")
@pytest.mark.parametrize("path", ["/v1/handoffs", "/mounted"])
def test_a_simple_cross_site_post_does_nothing(path: str, http: httpx2.Client, running: Running) -> None:
    before = dict(running.services.handoffs.results)
    body = b'{"agent_profile":"echo","message":"m"}'
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "text/plain", "Origin": "null"}):
        assert http.post(path, content=body, headers=headers).status_code in (403, 415)
    assert running.services.handoffs.results == before


def test_a_preflight_of_a_page_from_elsewhere_gets_no_permission(http: httpx2.Client) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = http.options("/v1/handoffs", headers=asked)
    assert reply.status_code == 403
    assert not any(name.startswith("access-control") for name in reply.headers)


@pytest.mark.parametrize("path", BEHIND)
@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer wrong", "Basic dTpw", "token-of-person"]
)
def test_without_a_valid_token_every_path_answers_the_same(
    authorization: str | None, path: str, stranger: httpx2.Client
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    reply = stranger.get(path, headers=headers)
    assert code(reply) == (401, "unauthenticated")
    assert reply.headers["www-authenticate"].startswith("Bearer")


def test_a_token_is_asked_for_before_the_body_is_looked_at(stranger: httpx2.Client) -> None:
    reply = stranger.post("/v1/handoffs", content=b"x" * 9_000_000)
    assert code(reply) == (401, "unauthenticated")


@pytest.mark.parametrize("path", ["/health", "/schema", "/schema/openapi.json", "/schema/openapi.yaml"])
def test_health_and_schema_are_open(path: str, stranger: httpx2.Client) -> None:
    assert stranger.get(path).status_code == 200


def test_health_says_what_answers(stranger: httpx2.Client) -> None:
    said = stranger.get("/health").json()
    assert said == {"status": "ok", "service": "changeover", "version": "9.9"}


def test_two_hosts_in_one_request_are_refused(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port), 5) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
        assert b" 400 " in connection.recv(1000).split(b"\r\n")[0]


def test_a_request_without_a_host_is_refused(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port), 5) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 421 " in connection.recv(1000).split(b"\r\n")[0]


def test_a_mounted_application_sees_the_caller_and_the_whole_body(http: httpx2.Client) -> None:
    reply = http.post("/mounted/deeper", json={"text": "x" * 100})
    assert reply.text == "/mounted/deeper /mounted person:person 111"
    assert reply.headers["x-request-id"].startswith("req_")
    assert http.get("/mountedness").status_code == 404


def test_an_unknown_path_and_an_unknown_method_are_problems(http: httpx2.Client) -> None:
    assert code(http.get("/nowhere")) == (404, "not_found")
    refused = http.put("/v1/handoffs", json={})
    assert code(refused) == (405, "invalid_params")
    assert set(refused.headers["allow"].split(", ")) >= {"GET", "POST"}


@pytest.mark.parametrize(
    ("method", "path", "taken"),
    [
        ("GET", "/v1/handoffs", {"person", "agent", "terminal"}),
        ("GET", "/v1/terminals", {"person", "agent", "terminal"}),
        ("GET", "/v1/profiles", {"person", "agent", "terminal"}),
        ("GET", "/v1/service", {"person", "agent"}),
        ("GET", "/v1/drivers", {"person", "agent"}),
        ("GET", "/v1/caller", {"person", "agent", "terminal"}),
        ("POST", "/v1/terminals", {"person", "agent"}),
    ],
)
@pytest.mark.parametrize("scope", [scope.value for scope in Scope])
@pytest.mark.promise("scopes")
def test_a_route_takes_the_scopes_it_names(
    scope: str, method: str, path: str, taken: set[str], stranger: httpx2.Client
) -> None:
    headers = {"Authorization": f"Bearer {TOKENS[scope]}"}
    body = {"agent_profile": "echo"} if method == "POST" else None
    reply = stranger.request(method, path, headers=headers, json=body)
    assert reply.status_code == 200 if scope in taken else code(reply) == (403, "forbidden")


@pytest.mark.promise("scopes")
def test_every_route_but_health_names_its_scopes() -> None:
    closed = [route.handler_name for route in ROUTES if not route.opt.get("scopes")]
    assert closed == ["health"]


def test_the_session_reaches_the_services(http: httpx2.Client, running: Running) -> None:
    body = {"agent_profile": "echo", "message": "m"}
    http.post("/v1/handoffs", json=body, headers={"Changeover-Session": "s-1"})
    assert running.services.handoffs.callers[-1].session == "s-1"
    http.post("/v1/handoffs", json=body)
    assert running.services.handoffs.callers[-1].session is None


@pytest.mark.parametrize("name", ["Changeover-Session", "Idempotency-Key"])
@pytest.mark.parametrize("value", ["", "two words", "x" * 256, "é"])
def test_a_session_and_a_key_are_short_visible_ascii(name: str, value: str, http: httpx2.Client) -> None:
    reply = http.get("/v1/handoffs", headers={name: value.encode()})
    assert code(reply) == (400, "invalid_params")


@pytest.mark.promise("idempotency")
def test_a_repeated_key_gives_the_first_answer_and_another_payload_is_refused(http: httpx2.Client) -> None:
    body, key = {"agent_profile": "echo", "message": "m"}, {"Idempotency-Key": "k-1"}
    first = http.post("/v1/handoffs", json=body, headers=key).json()
    again = http.post("/v1/handoffs", json=body, headers=key).json()
    assert (again["handoff_id"], again["replayed"]) == (first["handoff_id"], True)
    other = http.post("/v1/handoffs", json={**body, "message": "other"}, headers=key)
    assert code(other) == (409, "duplicate_idempotency_key")


def test_a_request_keeps_the_id_it_came_with_where_it_is_harmless(http: httpx2.Client) -> None:
    assert http.get("/health", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    odd = http.get("/health", headers={"X-Request-Id": 'a"b c'}).headers["x-request-id"]
    assert odd.startswith("req_")


def test_each_request_is_one_line_of_json_without_token_or_body(http: httpx2.Client, log: Log) -> None:
    http.post("/v1/handoffs?secret=1", json={"agent_profile": "echo", "message": "a secret"})
    http.get("/mounted")
    http.get("/nowhere", headers={"Authorization": "Bearer wrong"})
    http.get("/health")  # its line may be missing yet, as that of the test before may come late
    lines = [line for line in map(json.loads, log.lines) if line["path"] != "/health"]
    told = [(line["method"], line["path"], line["status"], line["principal"]) for line in lines]
    assert told == [
        ("POST", "/v1/handoffs", 400, "person:person"),
        ("GET", "/mounted", 200, "person:person"),
        ("GET", "/nowhere", 401, None),
    ]
    assert all(line["duration_ms"] >= 0 and line["request_id"] for line in lines)
    assert "secret" not in str(log.lines)
    assert "token-of" not in str(log.lines)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ([(b"host", b"localhost"), (b"authorization", b"Bearer token-of-person")], True),
        ([(b"host", b"localhost")], False),
        ([(b"host", b"evil.example"), (b"authorization", b"Bearer token-of-person")], False),
        (
            [(b"host", b"localhost"), (b"origin", b"null"), (b"authorization", b"Bearer token-of-person")],
            False,
        ),
    ],
)
async def test_a_websocket_passes_the_same_checks(headers: list[tuple[bytes, bytes]], accepted: bool) -> None:
    sent: list[dict[str, Any]] = []

    async def accepting(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/socket", "query_string": b"", "headers": headers}
    app = create_app(Services(), ApiSettings(), mounts={"/socket": accepting})
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.accept" if accepted else "websocket.close"]


@pytest.mark.anyio
async def test_a_body_that_does_not_arrive_is_a_408_and_one_cut_off_is_dropped() -> None:
    services = Services()
    settings = ApiSettings(body_seconds=0.05)
    async with serving(create_app(services, settings)) as server:
        head = (
            f"POST /v1/handoffs HTTP/1.1\r\nHost: {server.url[7:]}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {TOKENS['person']}\r\nContent-Length: 40\r\n\r\n{{"
        ).encode()
        async with await anyio.connect_tcp("127.0.0.1", server.port) as late:
            await late.send(head)
            assert b" 408 " in (await late.receive()).split(b"\r\n")[0]
        async with await anyio.connect_tcp("127.0.0.1", server.port) as cut:
            await cut.send(head)
    assert services.handoffs.results == {}


@pytest.mark.anyio
async def test_a_mounted_application_that_fails_is_a_problem_and_one_that_has_begun_breaks_off() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].endswith("begun"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("SELECT secret")

    app = create_app(Services(), ApiSettings(), mounts={"/failing": failing})
    transport = httpx2.ASGITransport(app)
    headers = {"Authorization": f"Bearer {TOKENS['person']}"}
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        reply = await client.get("/failing")
        assert code(reply) == (500, "internal")
        assert "SELECT" not in reply.text
        with pytest.raises(RuntimeError):
            await client.get("/failing/begun")


@pytest.mark.anyio
async def test_lifespan_contexts_are_open_while_the_application_runs() -> None:
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def life(app: Any) -> AsyncIterator[None]:
        told.append("open")
        yield
        told.append("closed")

    async with serving(create_app(Services(), ApiSettings(), lifespan=[life])):
        assert told == ["open"]
    assert told == ["open", "closed"]
