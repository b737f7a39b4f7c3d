"""One handoff from a caller to a real agent in a real terminal and back."""

import pytest

from tests.live import LiveService, hand_off

pytestmark = pytest.mark.anyio


async def test_the_answer_comes_back_byte_for_byte(shared: LiveService) -> None:
    message = "Grüße, 漢字 😀\n\ttabs stay\n  so do blanks  \n/not a command\n!ls\n`$HOME` #(id) %H ; \\"
    result = await hand_off(shared, "scripted", message)
    assert (result.status, result.outcome, result.output) == ("completed", "succeeded", message)


@pytest.mark.parametrize("message", ["", " ", "null", "123", '{"k":1}', "\n", "/help", "!ls", ";", "-x"])
async def test_short_messages_arrive_exactly_as_sent(shared: LiveService, message: str) -> None:
    assert (await hand_off(shared, "scripted", message)).output == message


async def test_a_megabyte_goes_in_and_comes_back(shared: LiveService) -> None:
    message = "".join(f"{number:07d} zeile ✓\n" for number in range(60_000))
    assert len(message.encode()) > 1_000_000
    result = await hand_off(shared, "scripted", message)
    assert result.outcome == "succeeded"
    assert result.truncated
    async with shared.client() as client:
        pages: list[str] = []
        offset: int | None = 0
        while offset is not None:
            page = await client.output(result.handoff_id, offset)
            pages.append(page.output)
            offset = page.next_offset
    assert "".join(pages) == message


async def test_a_shell_answers_with_exact_output_and_exit_status(shared: LiveService) -> None:
    done = await hand_off(shared, "shell", "echo hello; echo world")
    assert (done.outcome, done.output, done.exit_status) == ("succeeded", "hello\nworld", 0)
    silent = await hand_off(shared, "shell", "true")
    assert (silent.outcome, silent.output) == ("succeeded", "")
    failed = await hand_off(shared, "shell", "echo oops >&2; exit 3")
    assert (failed.outcome, failed.output, failed.exit_status) == ("failed", "oops", 3)


async def test_bytes_that_no_text_can_hold_cost_a_character_and_not_the_answer(shared: LiveService) -> None:
    odd = shared.work / "odd.bin"
    odd.write_bytes(b"a\0b\xff\xed\xa0\x80c \x1b[31m")
    scripted = await hand_off(shared, "scripted", f"@file {odd}")
    assert (scripted.outcome, scripted.output) == ("succeeded", "a�b����c \x1b[31m")
    shell = await hand_off(shared, "shell", f"cat {odd}")
    assert (shell.outcome, shell.output) == ("succeeded", "a�b����c \x1b[31m")
    failed = await hand_off(shared, "scripted", f"@file {odd}\n@wait 0.3\n@exit 3")
    assert (failed.outcome, failed.output) == ("failed", "a�b����c \x1b[31m")


async def test_the_terminal_is_gone_once_its_answer_is_stored(shared: LiveService) -> None:
    result = await hand_off(shared, "scripted", "bye")
    async with shared.client() as client:
        terminal = await client.terminal(result.terminal_id or "")
    assert terminal.state in ("ended", "running")
    assert result.output == "bye"


@pytest.mark.promise("facts")
@pytest.mark.promise("evidence")
@pytest.mark.promise("one-record")
@pytest.mark.promise("identity")
async def test_the_record_tells_what_happened_how_it_is_known_and_who_did_it(shared: LiveService) -> None:
    result = await hand_off(shared, "scripted", "@say done")
    async with shared.client() as client:
        record = await client.thread(result.handoff_id)
    assert record.thread_id == result.handoff_id
    assert [event.type for event in record.events if event.type.startswith("thread.")] == [
        "thread.created",
        "thread.accepted",
        "thread.completed",
    ]
    told = {event.type: event for event in record.events}
    assert told["terminal.ready"].data["source"] == "hook"
    assert told["delivery.taken"].data["source"] == "hook"
    assert told["agent.turn_ended"].data["turn"] == told["delivery.taken"].data["turn"]
    ids = [event.id for event in record.events]
    assert ids == sorted(ids)
    assert record.sender == "person:owner"
    assert record.messages[0].author == "person:owner"
    assert record.recipient == f"terminal:{result.terminal_id}"
    assert [(message.sequence_no, message.text) for message in record.messages] == [(1, "@say done")]


@pytest.mark.promise("header")
async def test_a_header_with_the_id_stands_ahead_of_a_task_and_a_shell_gets_none(
    shared: LiveService,
) -> None:
    shared.profile("logging", f'driver: scripted\ncommand: ["--log", "{shared.work}/header.jsonl"]')
    result = await hand_off(shared, "logging", "/help me")
    [turn] = (shared.work / "header.jsonl").read_text().splitlines()
    assert f"[handoff {result.handoff_id}]" in turn
    assert (await hand_off(shared, "shell", "echo plain")).output == "plain"
