"""Field cases A1 to A7: a message typed into a terminal arrives once, whole, and nowhere else."""

import hashlib
import json
import time
from pathlib import Path

import anyio
import pytest

from orchestrator.domain.errors import InvalidParams, TooLarge
from orchestrator.wire import MAX_MESSAGE_BYTES
from tests.cases.recording import FRAME, desk
from tests.cases.scripted import ScriptedProfile, settled, terminal_of
from tests.live import LiveService, hand_off, in_phase
from tests.terminals.pty_program import PtyProgram

pytestmark = pytest.mark.anyio

ROUNDS = 3
"""How often the ten senders of A7 send at once; the case names 20 rounds, which take half a minute."""
SENDERS = 10
FORTY_LINES = "\n".join(f"line {number} of forty" for number in range(1, 41))


# A1


@pytest.mark.promise("A1")
async def test_an_enter_that_the_agent_swallows_after_a_long_paste_is_pressed_again(
    shared: LiveService,
) -> None:
    profile = ScriptedProfile(shared, "--ignore-enter-ms", "800")
    result = await hand_off(shared, profile.name, FORTY_LINES)
    assert (result.outcome, result.output) == ("succeeded", FORTY_LINES)
    assert result.duration_s < 10
    assert profile.texts() == [FORTY_LINES]


@pytest.mark.promise("A1")
async def test_an_agent_that_reacts_late_gets_no_second_enter(shared: LiveService) -> None:
    profile = ScriptedProfile(shared, "--react-late-ms", "3000")
    result = await hand_off(shared, profile.name, FORTY_LINES)
    assert (result.outcome, result.output) == ("succeeded", FORTY_LINES)
    assert profile.texts() == [FORTY_LINES]


@pytest.mark.promise("A1")
async def test_an_agent_that_is_slower_than_its_driver_expects_gets_no_second_enter(tmp_path: Path) -> None:
    log = tmp_path / "turns"
    async with desk(tmp_path) as terminals:
        terminal = await terminals.start("slow", "impatient", ["--react-late-ms", "800", "--log", str(log)])
        for text in (FORTY_LINES, "next"):  # what else was pressed for the first is taken before the second
            taken = await terminals.terminals.submit(terminal, text, header=None)
            assert taken.enters == 1
            with anyio.fail_after(10):
                await terminals.terminals.wait_ready(terminal)
    assert [json.loads(line)["text"] for line in log.read_text().splitlines()] == [FORTY_LINES, "next"]


@pytest.mark.promise("A1")
async def test_a_draft_that_can_never_be_submitted_is_a_failure_and_no_delivery(shared: LiveService) -> None:
    profile = ScriptedProfile(shared, "--ignore-enter-ms", "3600000")
    async with shared.client() as client:
        agent = await profile.start(client)
        async with anyio.create_task_group() as tasks:

            async def relay() -> None:
                failed = await settled(client, await client.send_text(agent.terminal_id, FORTY_LINES))
                assert (failed.state, failed.delivered_at) == ("failed", None)
                assert "not submitted" in (failed.reason or "")

            tasks.start_soon(relay)
            result = await hand_off(shared, profile.name, FORTY_LINES)
        assert result.error is not None
        assert (result.outcome, result.error.code) == ("failed", "not_submitted")
        assert profile.turns() == []


# A2


@pytest.mark.promise("A2")
async def test_a_message_may_end_in_a_semicolon_or_be_nothing_else(tmp_path: Path) -> None:
    async with desk(tmp_path) as terminals:
        for number, text in enumerate(
            ["run the tests;", ";", "a;;", "x\\;", "for i in 1; do :; done;", "\\;", "a ; b"]
        ):
            for driver in ("plain", "bracketed"):
                terminal = await terminals.start(f"{driver}{number}", driver)
                await terminals.type(terminal, text)
                sent = text.encode() if driver == "plain" else text.encode().join(FRAME)
                assert await terminals.recorded(terminal, len(sent) + 1) == sent + b"\r"


# A3


@pytest.mark.promise("A3")
async def test_text_that_looks_like_an_option_or_a_key_is_typed_and_into_its_own_pane_only(
    tmp_path: Path,
) -> None:
    texts = [
        "-----BEGIN TEST-----",
        "--- a/file.py",
        "-t %1",
        "ssh -t user@example.org",
        "Enter",
        "C-c",
        "Escape",
        "Space",
        "Up",
        "%1",
        "$HOME `id` #(id) #{pane_id} ~ 'quoted' \"twice\"",
    ]
    async with desk(tmp_path) as terminals:
        worker = await terminals.start("worker", "plain")
        other = await terminals.start("other", "plain")
        terminals.tmux("select-window", "-t", "changeover:term_other")
        expected = b""
        for text in texts:
            await terminals.type(worker, text)
            expected += text.encode() + b"\r"
        assert await terminals.recorded(worker, len(expected)) == expected
        assert await terminals.recorded(other, 0) == b""


@pytest.mark.promise("A3", "control-characters")
async def test_control_characters_of_a_message_press_no_key(tmp_path: Path) -> None:
    async with desk(tmp_path) as terminals:
        worker = await terminals.start("worker", "bracketed")
        hostile = "a\x03b\x1bc\x1b[201~\rd\x04e\x7ff\x9b201~g\x00h"
        await terminals.type(worker, hostile)
        sent = b"abc[201~\ndef201~gh".join(FRAME)
        assert await terminals.recorded(worker, len(sent) + 1) == sent + b"\r"


# A4

SIZES = {
    "16,000 in one line": "x" * 16_000,
    "16,400 in one line": "x" * 16_400,
    "65,536 in one line": "x" * 65_536,
    "300,000 in one line": "x" * 300_000,
    "20,000 lines": "\n".join(f"{number:040d}" for number in range(20_000)),
    "100,000 wide characters": "漢😀" * 50_000,
}


@pytest.mark.promise("A4")
async def test_a_message_of_any_size_arrives_whole(tmp_path: Path) -> None:
    async with desk(tmp_path) as terminals:
        for number, text in enumerate(SIZES.values()):
            terminal = await terminals.start(f"worker{number}", "bracketed")
            await terminals.type(terminal, text)
            sent = text.encode().join(FRAME) + b"\r"
            record = await terminals.recorded(terminal, len(sent))
            assert hashlib.sha256(record).digest() == hashlib.sha256(sent).digest()


@pytest.mark.promise("A4")
async def test_fifty_thousand_characters_are_there_within_five_seconds(tmp_path: Path) -> None:
    async with desk(tmp_path) as terminals:
        terminal = await terminals.start("worker", "bracketed")
        begun = time.monotonic()
        await terminals.type(terminal, "x" * 50_000)
        await terminals.recorded(terminal, 50_013)
        assert time.monotonic() - begun < 5


@pytest.mark.promise("A4")
async def test_a_text_over_the_limit_is_refused_and_nothing_is_typed(shared: LiveService) -> None:
    profile = ScriptedProfile(shared)
    text = "x" * (MAX_MESSAGE_BYTES + 1)
    async with shared.client() as client:
        agent = await profile.start(client)
        with pytest.raises(TooLarge, match=str(MAX_MESSAGE_BYTES)):
            await client.send_text(agent.terminal_id, text)
        with pytest.raises(TooLarge, match=str(MAX_MESSAGE_BYTES)):
            await client.start_handoff(shared.request(profile.name, text))
        await settled(client, await client.send_text(agent.terminal_id, "short"))
        assert profile.texts() == ["short"]


@pytest.mark.promise("A4")
async def test_a_text_of_exactly_the_limit_is_a_turn(shared: LiveService) -> None:
    profile = ScriptedProfile(shared)
    text = "@say whole\n"
    text += "x" * (MAX_MESSAGE_BYTES - len(text))
    result = await hand_off(shared, profile.name, text)
    assert (result.outcome, result.output) == ("succeeded", "whole")
    assert profile.texts() == [text]


# A5


@pytest.mark.promise("A5")
@pytest.mark.parametrize("text", ["l1\nl2\nl3\n", "l1\r\nl2\r\nl3\r\n"], ids=["LF", "CRLF"])
async def test_several_lines_are_one_paste_where_the_program_asked_for_it(tmp_path: Path, text: str) -> None:
    async with desk(tmp_path) as terminals:
        asked = await terminals.start("asked", "bracketed")
        await terminals.type(asked, text)
        sent = b"l1\nl2\nl3\n".join(FRAME) + b"\r"
        assert await terminals.recorded(asked, len(sent)) == sent

        plain = await terminals.start("plain", "plain")
        await terminals.type(plain, text)
        sent = b"l1\nl2\nl3\r"
        assert await terminals.recorded(plain, len(sent)) == sent


@pytest.mark.promise("A5")
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
async def test_a_shell_runs_each_line_once_and_in_order(shared: LiveService, end: str) -> None:
    shared.profile("dash", "driver: shell\ncommand: [dash]")
    result = await hand_off(shared, "dash", f"echo A1{end}echo B2{end}")
    assert (result.outcome, result.output) == ("succeeded", "A1\nB2")


@pytest.mark.promise("A5")
@pytest.mark.parametrize("text", ["l1\nl2\nl3\n", "l1\r\nl2\r\nl3\r\n"], ids=["LF", "CRLF"])
async def test_lines_with_a_line_end_at_the_end_are_one_turn(shared: LiveService, text: str) -> None:
    profile = ScriptedProfile(shared)
    async with shared.client() as client:
        agent = await profile.start(client)
        await settled(client, await client.send_text(agent.terminal_id, text))
        await settled(client, await client.send_text(agent.terminal_id, "next"))
    assert profile.texts() == ["l1\nl2\nl3\n", "next"]


@pytest.mark.promise("A5")
@pytest.mark.parametrize("text", ["", " ", "\n", "\r\n", "\t \n", "\x1b\x03"])
async def test_a_text_with_nothing_to_see_is_refused_and_makes_no_empty_turn(
    shared: LiveService, text: str
) -> None:
    profile = ScriptedProfile(shared)
    async with shared.client() as client:
        agent = await profile.start(client)
        with pytest.raises(InvalidParams, match="nothing"):
            await client.send_text(agent.terminal_id, text)
        await settled(client, await client.send_text(agent.terminal_id, "next"))
    assert profile.texts() == ["next"]


# A6


@pytest.mark.promise("A6")
async def test_a_pane_that_somebody_scrolled_takes_the_message_once(shared: LiveService) -> None:
    profile = ScriptedProfile(shared, "--history", "hello there")
    async with shared.client() as client:
        agent = await profile.start(client)
        for mode in (
            [],
            ["copy-mode -t {}"],
            ["copy-mode -u -t {}"],
            ["copy-mode -t {}", "send-keys -t {} -X search-backward hello"],
            ["clock-mode -t {}"],
            ["choose-tree -t {}"],
        ):
            for command in mode:
                done = shared.tmux(*command.format(f"changeover:{agent.terminal_id}").split())
                assert done.returncode == 0, done.stderr
            sent = await settled(client, await client.send_text(agent.terminal_id, "hello q world"))
            assert sent.state == "delivered", (mode, sent.reason)
    assert profile.texts() == ["hello q world"] * 6


@pytest.mark.promise("A6")
async def test_a_person_who_is_searching_the_pane_keeps_no_message_out(
    shared: LiveService, tmp_path: Path
) -> None:
    profile = ScriptedProfile(shared, "--history", "hello there")
    async with shared.client() as client:
        agent = await profile.start(client)
        with PtyProgram(agent.attach_command, tmp_path, env={"TERM": "xterm-256color"}) as person:
            person.shown("hello there")
            person.type(b"\x02[")
            person.until(lambda: mode_of(shared, agent.terminal_id) == "copy-mode")
            person.type(b"\x13")
            person.shown("(search down)")
            person.type(b"hel")
            sent = await settled(client, await client.send_text(agent.terminal_id, "hello q world"))
            assert sent.state == "delivered", sent.reason
    assert profile.texts() == ["hello q world"]


def mode_of(service: LiveService, terminal_id: str) -> str:
    return service.tmux(
        "display-message", "-p", "-t", f"changeover:{terminal_id}", "#{pane_mode}"
    ).stdout.strip()


# A7


@pytest.mark.promise("A7", "one-writer")
async def test_ten_senders_at_once_make_ten_turns_in_the_recorded_order(shared: LiveService) -> None:
    for _ in range(ROUNDS):
        profile = ScriptedProfile(shared)
        texts = [f"M{number:02d} one\nM{number:02d} two\nM{number:02d} three" for number in range(1, 11)]
        async with shared.client() as person, shared.client("agent") as agent:
            worker = await profile.start(person)
            async with anyio.create_task_group() as tasks:
                for number, text in enumerate(texts):
                    tasks.start_soon((person, agent)[number % 2].send_text, worker.terminal_id, text)
            sent = [
                await settled(person, each) for each in (await person.deliveries(worker.terminal_id)).items
            ]
            await person.close_terminal(worker.terminal_id)
        assert [each.state for each in sent] == ["delivered"] * SENDERS
        assert [each.turn for each in sent] == [turn["turn"] for turn in profile.turns()]
        assert sorted(profile.texts()) == texts


@pytest.mark.promise("A7", "one-writer")
async def test_a_handoff_s_task_and_messages_to_its_terminal_do_not_mix(shared: LiveService) -> None:
    texts = [f"M{number:02d} one\nM{number:02d} two\nM{number:02d} three" for number in range(1, 11)]
    for _ in range(ROUNDS):
        profile = ScriptedProfile(shared, "--react-late-ms", "20", front="completion: report")
        async with shared.client() as client:
            started = await client.start_handoff(shared.request(profile.name, texts[0]))
            terminal_id = await terminal_of(client, started.handoff_id)
            async with anyio.create_task_group() as tasks:
                for text in texts[1:]:
                    tasks.start_soon(client.send_text, terminal_id, text)
            sent = [await settled(client, each) for each in (await client.deliveries(terminal_id)).items]
            turns = {turn["turn"]: text for turn, text in zip(profile.turns(), profile.texts(), strict=True)}
            await client.stop(started.handoff_id)
        in_order = [turns[each.turn] for each in sent]
        assert in_order[0] == texts[0]
        # The service's own reminders to report are turns of their own among them.
        assert sorted(text for text in in_order if not text.startswith("[changeover]")) == texts
        assert list(turns)[: len(sent)] == [each.turn for each in sent]


# Late


@pytest.mark.promise("submit-proof")
async def test_a_text_given_up_as_uncertain_is_recognised_when_it_is_submitted_after_all(
    shared: LiveService,
) -> None:
    profile = ScriptedProfile(shared, "--react-late-ms", "15500")
    async with shared.client() as client:
        started = await client.start_handoff(shared.request(profile.name, "@say at last"))
        now = await in_phase(client, started.handoff_id, "uncertain")
        assert (now.status, now.terminal_id is not None) == ("pending", True)
        # A person finds the text in the composer and presses Enter.
        shared.tmux("send-keys", "-t", f"=changeover:={now.terminal_id}", "Enter")
        waited = await client.wait_until([started.handoff_id], "all", 60)
    result = waited.handoffs[0]
    assert (result.outcome, result.output) == ("succeeded", "at last")
    assert profile.texts() == ["@say at last"]
