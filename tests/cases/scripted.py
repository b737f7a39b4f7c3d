"""Scripted agents with switches, whose turns are logged where they outlive the terminal."""

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

import anyio

from orchestrator.client import Client
from orchestrator.wire import DeliveryView, TerminalView
from tests.live import START_SECONDS, LiveService, start_agent

T = TypeVar("T")

_numbers = count(1)


class ScriptedProfile:
    """A profile of its own for one test; `front` is more front matter."""

    def __init__(self, service: LiveService, *switches: str, front: str = "") -> None:
        self.service = service
        self.name = f"scripted{next(_numbers)}"
        self.log = service.work / f"{self.name}.jsonl"
        command = json.dumps([*switches, "--log", str(self.log)])
        service.profile(self.name, f"driver: scripted\ncommand: {command}\n{front}")

    async def start(self, client: Client) -> TerminalView:
        """A long-lived agent of this profile, at its prompt."""
        return await start_agent(self.service, client, self.name, self.name)

    def turns(self) -> list[dict[str, str | None]]:
        """Each turn submitted, with `turn` and `text`; an empty submit is one with no `turn`."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def texts(self) -> list[str]:
        """What each turn said, without the header of a handoff."""
        texts = [turn["text"] or "" for turn in self.turns()]
        return [text.partition("\n")[2] if text.startswith("[handoff ") else text for text in texts]


async def seen(look: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """What `look` gives, once it `holds`."""
    with anyio.fail_after(START_SECONDS):
        while True:
            found = await look()
            if holds(found):
                return found
            await anyio.sleep(0.02)


async def current(client: Client, delivery: DeliveryView) -> DeliveryView:
    items = (await client.deliveries(delivery.terminal_id)).items
    [found] = [each for each in items if each.delivery_id == delivery.delivery_id]
    return found


async def settled(client: Client, delivery: DeliveryView) -> DeliveryView:
    """This delivery once it is neither queued nor being typed."""
    return await seen(
        lambda: current(client, delivery), lambda now: now.state in ("delivered", "uncertain", "failed")
    )


async def activity(client: Client, terminal_id: str, wanted: str) -> TerminalView:
    """The terminal once its agent is `wanted` (ready, working, asking, ended)."""
    return await seen(lambda: client.terminal(terminal_id), lambda view: view.activity == wanted)


async def terminal_of(client: Client, handoff_id: str) -> str:
    """The terminal of this handoff, once it has one."""
    found = await seen(lambda: client.handoff(handoff_id), lambda result: result.terminal_id is not None)
    return found.terminal_id or ""
