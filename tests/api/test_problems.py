"""Which status each error has, and what its reply tells."""

import json
from typing import Any

import pytest

from orchestrator import wire
from orchestrator.api.problems import STATUS, problem, status_of
from orchestrator.domain import errors
from orchestrator.domain.errors import ChangeoverError

PROMISED = {
    errors.InvalidParams: 400,
    errors.TooLarge: 413,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotAuthorizedTransition: 403,
    errors.ThreadNotFound: 404,
    errors.TerminalNotFound: 404,
    errors.UnknownProfile: 404,
    errors.ThreadTerminal: 409,
    errors.InvalidTransition: 409,
    errors.StateChanged: 409,
    errors.DuplicateIdempotencyKey: 409,
    errors.HandoffCycle: 409,
    errors.TerminalBusy: 409,
    errors.StartFailed: 502,
    errors.Interrupted: 503,
    errors.Unavailable: 503,
}


@pytest.mark.parametrize(("kind", "status"), PROMISED.items(), ids=lambda each: getattr(each, "code", each))
def test_each_error_has_the_promised_status(kind: type[ChangeoverError], status: int) -> None:
    assert status_of(kind("no")) == status


def test_no_error_of_the_tree_is_a_500_by_forgetting() -> None:
    branches = set(ChangeoverError.__subclasses__())
    assert branches <= set(STATUS)


def test_a_problem_tells_the_code_the_detail_and_the_facts() -> None:
    told = problem(errors.StateChanged("another one won", winner="agent:a"), "req_1")
    body = wire.Problem(**_decoded(told.body))
    assert (told.status, body.status, body.code, body.title) == (409, 409, "state_changed", "State changed")
    assert (body.type, body.detail) == ("urn:changeover:error:state_changed", "another one won")
    assert (body.facts, body.request_id) == ({"winner": "agent:a"}, "req_1")


@pytest.mark.parametrize(
    "error", [RuntimeError("DROP TABLE"), ChangeoverError("DROP TABLE", sql="DROP TABLE")]
)
def test_an_unexpected_error_tells_nothing(error: Exception) -> None:
    told = problem(error, "req_1")
    assert (told.status, _decoded(told.body)["code"]) == (500, "internal")
    assert b"DROP" not in told.body


def test_facts_that_are_no_json_and_text_that_is_no_unicode_still_make_a_problem() -> None:
    odd = problem(errors.StartFailed("lost \udc80 byte", last_lines="\udcff"), "req_1")
    assert _decoded(odd.body)["detail"] == "lost ? byte"
    told = problem(errors.StartFailed("no", when=range(3)), "req_1")
    assert _decoded(told.body)["facts"] == {"when": "range(0, 3)"}


def test_a_long_detail_is_cut() -> None:
    assert len(problem(errors.NotFound("x" * 1_000_000), "req_1").body) < 5000


def test_what_may_be_tried_again_says_when() -> None:
    assert problem(errors.Interrupted("stopping"), "r").headers["Retry-After"] == "1"


def _decoded(body: bytes) -> dict[str, Any]:
    return json.loads(body)
