"""One example of each body, for the OpenAPI document: a handoff told from its start to its end."""

from datetime import UTC, datetime, timedelta

import msgspec

from orchestrator import wire

_HANDOFF, _TERMINAL = "thr_01k9zt3v8m4c7f2q5x6y8a9b0d", "trm_01k9zt3w1r5e8h3s7z9b2c4d6f"
_START = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
_ANSWER = "parse() rejects an empty line now; two tests added, all pass."

_result = wire.HandoffResult(
    handoff_id=_HANDOFF,
    status="completed",
    agent_profile="reviewer",
    duration_s=41.7,
    outcome="succeeded",
    output=_ANSWER,
    output_chars=len(_ANSWER),
    terminal_id=_TERMINAL,
    exit_status=0,
)
_event = wire.EventView(
    id=118,
    type="accepted",
    at=_START + timedelta(seconds=1),
    by="service:service",
    data={"source": "hook"},
    thread_id=_HANDOFF,
    terminal_id=_TERMINAL,
)
_message = wire.MessageView(
    sequence_no=1, author="person:me", text="Make parse() reject empty lines.", created_at=_START
)
_terminal = wire.TerminalView(
    terminal_id=_TERMINAL,
    agent_profile="reviewer",
    driver="claude",
    state="living",
    activity="working",
    working_directory="/home/me/project",
    started_at=_START,
    name="rita",
    handoff_id=_HANDOFF,
    pid=4242,
)
_delivery = wire.DeliveryView(
    delivery_id="dlv_01k9zt41n6g9j4t8a0c3d5e7g",
    terminal_id=_TERMINAL,
    position=1,
    state="queued",
    created_at=_START,
)
_profile = wire.ProfileView(
    name="reviewer",
    source="built-in",
    path="profiles/reviewer.md",
    description="Reads a change and says what is wrong with it.",
    driver="claude",
)

EXAMPLES: list[msgspec.Struct] = [
    wire.HandoffRequest(agent_profile="reviewer", message="Make parse() reject empty lines."),
    wire.WaitRequest(handoff_ids=[_HANDOFF]),
    wire.CompleteRequest(result=_ANSWER),
    wire.StartAgentRequest(agent_profile="reviewer", name="rita", working_directory="/home/me/project"),
    wire.SendTextRequest(text="Please look at the tests as well."),
    _result,
    wire.HandoffError(
        code="terminal_dead", detail="the agent ended with status 1", exit_status=1, last_lines="Bye."
    ),
    wire.HandoffList(items=[_result]),
    wire.WaitResponse(wait="done", handoffs=[_result]),
    wire.OutputPage(handoff_id=_HANDOFF, offset=0, output=_ANSWER, total_chars=len(_ANSWER)),
    _event,
    _message,
    wire.ThreadView(
        thread_id=_HANDOFF,
        origin="blocking",
        status="accepted",
        outcome=None,
        sender="person:me",
        recipient=f"terminal:{_TERMINAL}",
        agent_profile="reviewer",
        model=None,
        working_directory="/home/me/project",
        parent_id=None,
        attempt=1,
        created_at=_START,
        accepted_at=_START + timedelta(seconds=1),
        ended_at=None,
        deadline_at=None,
        cancel_reason=None,
        result_facts=None,
        messages=[_message],
        events=[_event],
    ),
    _terminal,
    wire.TerminalList(items=[_terminal]),
    wire.ScreenView(terminal_id=_TERMINAL, text="> working on it\n"),
    _delivery,
    wire.DeliveryList(items=[_delivery]),
    _profile,
    wire.ProfileList(items=[_profile]),
    wire.DriverView(name="claude", program="claude", found=True, path="/usr/bin/claude", version="2.1.332"),
    wire.ServiceView(
        version="0.1.0",
        instance="ins_01k9zt2b7k3d6g1p4w5x7y8z9c",
        home="/home/me/.local/share/changeover",
        url="http://127.0.0.1:8765",
        database="sqlite",
        pid=4200,
        terminals=1,
        max_terminals=16,
    ),
    wire.CallerView(scope="terminal", principal=f"terminal:{_TERMINAL}", terminal_id=_TERMINAL),
    wire.Problem(
        type="urn:changeover:error:invalid_params",
        title="Invalid params",
        status=400,
        code="invalid_params",
        detail="Expected `int`, got `str` - at `$.timeout`",
        request_id="req_5f0c2a9e1b7d4836",
        facts={"path": "timeout"},
    ),
]
