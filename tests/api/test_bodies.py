"""Bodies that are not what they should be, at every address that takes one."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from orchestrator import wire
from tests.api.conftest import LIMIT, Log, Running

POSTS = [
    "/v1/handoffs",
    "/v1/handoffs/wait",
    "/v1/handoffs/{handoff}/stop",
    "/v1/handoffs/{handoff}/complete",
    "/v1/terminals",
    "/v1/terminals/{terminal}/messages",
]
DEEP = 10_000
MALFORMED = {
    "a trailing comma": b'{"a":1,}',
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"x"',
    "invalid UTF-8": b'{"message":"\xff"}',
    "an encoded surrogate": b'{"message":"\xed\xa0\x80"}',
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep lists in a field": b'{"message":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a number without bounds": b'{"timeout":1e999}',
    "an integer of 5000 digits": b'{"timeout":' + b"1" * 5000 + b"}",
    "an unknown field": b'{"agent_profile":"echo","message":"m","surprise":1}',
    "more than one value": b"{} {}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "half of a pair": rb'{"agent_profile":"echo","message":"\ud83d","result":"\ud83d","text":"\ud83d"}',
    "the other half": rb'{"agent_profile":"echo","message":"a\udc00b","result":"a\udc00b","text":"\udc00"}',
    "a field named by half of a pair": rb'{"\ud83d":1}',
    "a field named by U+0000": rb'{"\u0000":1}',
}
INTERNALS = (
    "Traceback",
    str(Path(__file__).parents[2]),
    ".py",
    "site-packages",
    "SELECT",
    "msgspec",
    "litestar",
)


@pytest.fixture
def addresses(http: httpx2.Client) -> dict[str, str]:
    started = http.post("/v1/handoffs", json={"agent_profile": "echo", "message": "m"}).json()
    agent = http.post("/v1/terminals", json={"agent_profile": "echo"}).json()
    names = {"handoff": started["handoff_id"], "terminal": agent["terminal_id"]}
    return {path: path.format_map(names) for path in POSTS}


def is_a_problem(reply: httpx2.Response, *statuses: int) -> wire.Problem:
    assert reply.status_code in statuses, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert not any(word in reply.text for word in INTERNALS)
    problem = wire.Problem(**reply.json())
    assert problem.status == reply.status_code
    assert problem.request_id == reply.headers["x-request-id"]
    return problem


def post(http: httpx2.Client, path: str, body: bytes) -> httpx2.Response:
    return http.post(path, content=body, headers={"Content-Type": "application/json"})


@pytest.mark.promise("G2")
@pytest.mark.promise("F4")
@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_body_is_a_400_and_the_next_request_works(
    case: str, path: str, http: httpx2.Client, addresses: dict[str, str], log: Log
) -> None:
    problem = is_a_problem(post(http, addresses[path], MALFORMED[case]), 400)
    assert problem.code == "invalid_params"
    assert len(problem.detail) < 400
    assert http.get("/v1/handoffs").status_code == 200
    assert not any("exception" in line for line in log.lines)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/json; charset=utf-16", "text/plain; application/json", "application/jsonx"],
)  # fmt: skip
def test_a_body_that_is_not_declared_as_json_is_a_415(
    content_type: str | None, path: str, http: httpx2.Client, addresses: dict[str, str], running: Running
) -> None:
    before = len(running.services.handoffs.results), len(running.services.agents.texts)
    headers = {} if content_type is None else {"Content-Type": content_type}
    body = b'{"agent_profile":"echo","message":"m"}'
    is_a_problem(http.post(addresses[path], content=body, headers=headers), 415)
    assert (len(running.services.handoffs.results), len(running.services.agents.texts)) == before


@pytest.mark.parametrize("path", POSTS)
def test_a_compressed_body_is_a_415(path: str, http: httpx2.Client, addresses: dict[str, str]) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    is_a_problem(http.post(addresses[path], content=b"{}", headers=headers), 415)


@pytest.mark.promise("G2")
@pytest.mark.parametrize("path", [*POSTS, "/mounted"])
def test_a_body_above_the_limit_is_a_413_whether_its_length_is_declared_or_not(
    path: str, http: httpx2.Client, addresses: dict[str, str]
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"message":"'
        for _ in range(11):
            yield b"x" * 1024 * 1024

    address = addresses.get(path, path)
    declared = is_a_problem(post(http, address, b'{"message":"' + b"x" * 11 * 1024 * 1024), 413)
    assert (declared.code, declared.facts) == ("too_large", {"limit": LIMIT})
    json_type = {"Content-Type": "application/json"}
    is_a_problem(http.post(address, content=chunks(), headers=json_type), 413)
    assert http.get("/v1/handoffs").status_code == 200


def test_a_body_just_within_the_limit_is_taken_whole(http: httpx2.Client, running: Running) -> None:
    frame = b'{"agent_profile":"echo","message":""}'
    body = frame[:-2] + b"x" * (LIMIT - len(frame)) + frame[-2:]
    assert len(body) == LIMIT
    reply = post(http, "/v1/handoffs", body)
    assert reply.status_code == 200
    asked = running.services.handoffs.requests[reply.json()["handoff_id"]]
    assert len(asked.message) == LIMIT - len(frame)
    assert post(http, "/v1/handoffs", body + b" ").status_code == 413


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/handoffs", b'{"agent_profile":"echo","message":"m","timeout":"5"}', "timeout"),
        ("/v1/handoffs", b'{"agent_profile":"echo","message":"m","timeout":3601}', "timeout"),
        ("/v1/handoffs", b'{"agent_profile":"echo","message":"m","timeout":1.5}', "timeout"),
        ("/v1/handoffs", b'{"agent_profile":"echo"}', "message"),
        ("/v1/handoffs", b'{"agent_profile":"echo","message":"m","extra":1}', "extra"),
        ("/v1/handoffs", rb'{"agent_profile":"echo","message":"a\u0000b"}', "message"),
        ("/v1/handoffs/wait", b'{"handoff_ids":["a",1]}', "handoff_ids[1]"),
        ("/v1/handoffs/wait", rb'{"handoff_ids":["a","\u0000"]}', "handoff_ids[1]"),
        ("/v1/handoffs/wait", b'{"mode":"some"}', "mode"),
        ("/v1/handoffs/wait", b"[]", "$"),
        ("/v1/handoffs/wait", b"{", "$"),
        ("/v1/handoffs/thr_1/stop", b'{"why":1}', "why"),
        ("/v1/handoffs/thr_1/complete", b'{"result":"r","outcome":"timed_out"}', "outcome"),
    ],
)
def test_a_refused_body_names_the_field(path: str, body: bytes, field: str, http: httpx2.Client) -> None:
    assert is_a_problem(post(http, path, body), 400).facts == {"path": field}


def test_an_escaped_backslash_before_u0000_is_text(http: httpx2.Client, running: Running) -> None:
    reply = post(http, "/v1/handoffs", rb'{"agent_profile":"echo","message":"\\u0000"}')
    assert running.services.handoffs.requests[reply.json()["handoff_id"]].message == r"\u0000"


@pytest.mark.promise("F4")
@pytest.mark.parametrize("form", [rb'"\ud83d\ude00"', '"😀"'.encode()])
def test_a_whole_pair_is_one_emoji_everywhere(form: bytes, http: httpx2.Client, running: Running) -> None:
    started = post(http, "/v1/handoffs", b'{"agent_profile":"echo","message":' + form + b"}").json()
    thread = http.get(f"/v1/threads/{started['handoff_id']}").json()
    assert thread["messages"][0]["text"] == "😀"
    agent = http.post("/v1/terminals", json={"agent_profile": "echo"}).json()["terminal_id"]
    assert post(http, f"/v1/terminals/{agent}/messages", b'{"text":' + form + b"}").status_code == 200
    assert running.services.agents.texts[-1] == "😀"
    done = post(http, f"/v1/handoffs/{started['handoff_id']}/complete", b'{"result":' + form + b"}").json()
    assert done["output"] == "😀"


@pytest.mark.parametrize("text", ["a\r\nb", "\t\x1b[31m", "no final newline", "\u202e\u2066", "ÿ\U0010ffff"])
def test_any_other_text_arrives_as_it_was(text: str, http: httpx2.Client) -> None:
    started = http.post("/v1/handoffs", json={"agent_profile": "echo", "message": text}).json()
    assert http.get(f"/v1/threads/{started['handoff_id']}").json()["messages"][0]["text"] == text


def test_an_empty_object_is_enough_where_nothing_is_asked(
    http: httpx2.Client, addresses: dict[str, str]
) -> None:
    stopped = post(http, addresses["/v1/handoffs/{handoff}/stop"], b"{}").json()
    assert stopped["outcome"] == "interrupted"


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=0", "limit"), ("limit=many", "limit"), ("limit=201", "limit"), ("status=gone", "status"),
     ("limit=%00", None)],
)  # fmt: skip
def test_a_malformed_parameter_is_a_400_that_names_it(
    query: str, field: str | None, http: httpx2.Client
) -> None:
    problem = is_a_problem(http.get(f"/v1/handoffs?{query}"), 400)
    assert problem.code == "invalid_params"
    assert field is None or problem.facts == {"path": field}


def test_an_unknown_parameter_is_a_400_that_names_the_known_ones(http: httpx2.Client) -> None:
    facts = is_a_problem(http.get("/v1/handoffs?limti=5"), 400).facts
    assert facts == {"path": "limti", "known": ["cursor", "limit", "status"]}
    assert is_a_problem(http.get("/v1/handoffs/thr_1?handoff_id=thr_2"), 400)


@pytest.mark.parametrize("name", ["%00", "a%00b", "%ED%A0%80", "%FF", "..%2f..%2fetc", "x" * 3000])
def test_an_id_that_can_be_none_is_not_found(name: str, http: httpx2.Client) -> None:
    assert is_a_problem(http.get(f"/v1/handoffs/{name}"), 404)


def test_a_failure_nobody_expected_says_nothing_but_the_request_id_and_is_logged(
    http: httpx2.Client, log: Log
) -> None:
    reply = http.post("/v1/handoffs", json={"agent_profile": "broken", "message": "secret words"})
    problem = is_a_problem(reply, 500)
    assert problem.code == "internal"
    assert "passwd" not in reply.text
    failures = [json.loads(line) for line in log.lines if "exception" in line]
    assert [each["request_id"] for each in failures] == [problem.request_id]
    assert "RuntimeError" in failures[0]["exception"]
    assert not any("secret words" in line or "token-of" in line for line in log.lines)
