"""Typing: paste, see it arrive, submit, see it taken. Nothing else writes into a terminal.

Every write is one control-mode line that first checks, inside tmux, that the pane lives and is ours: on tmux
3.3a a paste into a dead pane that is kept on screen ends the whole server.
"""

import re
import time
from collections.abc import Collection
from pathlib import Path

import anyio
import anyio.to_thread

from orchestrator.domain.errors import NotSubmitted, TerminalBusy, Uncertain
from orchestrator.ports import Taken
from orchestrator.terminals.agent import Activity, RunningAgent
from orchestrator.terminals.control import Control, quote
from orchestrator.terminals.driver import Look, View
from orchestrator.terminals.tmux import TAG

PASTE_SEEN_SECONDS = 15.0
"""How long a paste may take to show; a CLI needs well under one second for 1 MB."""

_REFUSED = "changeover-refused"
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` as it may be typed: line breaks as LF, no control character but tab and LF."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


class Typist:
    """Types into the panes of one tmux server."""

    def __init__(self, control: Control, boot_id: str) -> None:
        self._control = control
        self._boot_id = boot_id

    async def look(self, agent: RunningAgent) -> Look:
        return agent.driver.look(await self.capture(agent))

    async def capture(self, agent: RunningAgent, history: int = 0, colours: bool = False) -> str:
        """The screen with `history` lines before it, wrapped lines joined, trailing blanks stripped."""
        start = f" -S -{history}" if history else ""
        flags = "-p -J -e" if colours else "-p -J"
        lines = await self._control.command(f"capture-pane {flags}{start} -t {self._pane(agent)}")
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    async def submit(self, agent: RunningAgent, text: str, header: str | None) -> Taken:
        """The contract is that of `Terminals.submit`."""
        async with agent.submitting:
            await self._require_prompt(agent)
            typed = await anyio.to_thread.run_sync(_composed, agent, text, header)
            agent.submitted.clear()
            agent.doubtful = None
            try:
                return await self._submit(agent, typed)
            except Uncertain:
                agent.doubtful = typed
                raise

    async def _submit(self, agent: RunningAgent, typed: str) -> Taken:
        rules = agent.driver.typing
        await self._paste(agent)
        begun = time.monotonic()
        if rules.sees_paste:
            await self._see_draft(agent)
        # An agent that was slow to show the text will be as slow to react to Enter.
        again = max(rules.enter_again, 2 * (time.monotonic() - begun))
        return await self._enter(agent, typed, rules.enter_delay, again)

    async def resume(
        self, agent: RunningAgent, text: str, header: str | None, earlier: Collection[str]
    ) -> Taken:
        """The contract is that of `Terminals.resume_submit`."""
        async with agent.submitting:
            agent.forget_submitted(earlier)
            rules = agent.driver.typing
            if not rules.sees_paste:
                return await self._resume_unseen(agent)
            typed = printable(f"{header}\n{text}" if header and rules.header else text)
            await self._see_draft_or_taken(agent, typed)
            # Enter may have been pressed already, and the agent react late.
            await agent.until(lambda: _taken(agent, typed, 0) is not None, rules.enter_again)
            taken = _taken(agent, typed, 0)
            if taken is not None:
                return taken
            if agent.end is not None:
                raise agent.failure()
            if (await self.look(agent)).view is View.DRAFT:
                return await self._enter(agent, typed, 0.0, rules.enter_again)
            raise Uncertain(f"the text for the terminal {agent.id} was sent and is not in its composer")

    async def _see_draft_or_taken(self, agent: RunningAgent, typed: str) -> None:
        """The paste may still be on its way into an agent that reacts late."""
        deadline = time.monotonic() + PASTE_SEEN_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            seen = agent.changes
            if agent.end is not None or _taken(agent, typed, 0) is not None:
                return
            if (await self.look(agent)).view is View.DRAFT:
                return
            await agent.change(seen, left)

    async def _resume_unseen(self, agent: RunningAgent) -> Taken:
        """For a CLI whose screen shows no draft: its submit event alone can tell."""
        if await agent.until(lambda: bool(agent.submitted), agent.driver.typing.enter_again):
            fact = agent.submitted[-1]
            return Taken(turn=fact.turn, source=fact.source, enters=0)
        if agent.end is not None:
            raise agent.failure()
        raise Uncertain(f"whether the text reached the terminal {agent.id} cannot be seen")

    async def prompt(self, agent: RunningAgent) -> None:
        """Returns once the agent is idle at an empty composer."""
        while True:
            if not await agent.until(lambda: agent.activity is Activity.IDLE):
                raise agent.failure()
            seen = agent.changes
            if not agent.driver.typing.sees_paste or (await self.look(agent)).view is View.PROMPT:
                return
            await agent.change(seen)

    async def _require_prompt(self, agent: RunningAgent) -> None:
        if agent.end is not None:
            raise agent.failure()
        if agent.activity is not Activity.IDLE:
            raise TerminalBusy(f"the terminal {agent.id} is {agent.activity}", activity=agent.activity)
        if agent.driver.typing.sees_paste:
            view = (await self.look(agent)).view
            if view is not View.PROMPT:
                raise TerminalBusy(f"the terminal {agent.id} shows a {view}, not its prompt", view=view)

    async def _paste(self, agent: RunningAgent) -> None:
        buffer = f"changeover-{agent.id}"
        await self._guarded(
            agent,
            # A person who scrolled left the pane in copy mode, which would eat the Enter.
            f"copy-mode -q -t {self._pane(agent)}",
            f"paste-buffer -p -r -d -b {buffer} -t {self._pane(agent)}",
            before=f"load-buffer -b {buffer} {quote(str(_paste_file(agent)))}",
        )

    async def _see_draft(self, agent: RunningAgent) -> None:
        deadline = time.monotonic() + PASTE_SEEN_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if agent.end is not None:
                raise agent.failure()
            seen = agent.changes
            look = await self.look(agent)
            if look.view is View.DRAFT:
                return
            if look.view is View.DIALOG:
                raise Uncertain(f"a dialog opened in the terminal {agent.id}: {look.question}")
            await agent.change(seen, left)
        raise Uncertain(f"the text was pasted into the terminal {agent.id} and did not show there")

    async def _enter(self, agent: RunningAgent, typed: str, delay: float, again: float) -> Taken:
        rules = agent.driver.typing
        if delay:
            await anyio.sleep(delay)
        deadline = time.monotonic() + rules.give_up
        enters = 0
        draft = True
        while draft or enters == 0:
            if agent.activity is Activity.ASKING:
                raise Uncertain(f"a dialog opened in the terminal {agent.id} before the text was submitted")
            await self._guarded(
                agent, f"copy-mode -q -t {self._pane(agent)}", f"send-keys -t {self._pane(agent)} Enter"
            )
            enters += 1
            left = deadline - time.monotonic()
            patience = min(again, left) if rules.sees_paste else left
            await agent.until(lambda: _taken(agent, typed, 0) is not None, patience)
            taken = _taken(agent, typed, enters)
            if taken is not None:
                return taken
            if agent.end is not None:
                raise agent.failure()
            draft = rules.sees_paste and (await self.look(agent)).view is View.DRAFT
            if draft and time.monotonic() >= deadline:
                raise NotSubmitted(
                    f"the text stands in the composer of the terminal {agent.id} and was not submitted"
                    f" after {enters} times Enter",
                    enters=enters,
                )
        return await self._late(agent, typed, enters, deadline)

    async def _late(self, agent: RunningAgent, typed: str, enters: int, deadline: float) -> Taken:
        """The draft is gone and no event came yet."""
        await agent.until(lambda: _taken(agent, typed, 0) is not None, deadline - time.monotonic())
        taken = _taken(agent, typed, enters)
        if taken is not None:
            return taken
        if agent.end is not None:
            raise agent.failure()
        raise Uncertain(f"no submit event of the terminal {agent.id} matches the text")

    async def _guarded(self, agent: RunningAgent, *commands: str, before: str | None = None) -> None:
        """Runs `commands` only if the pane lives and carries our tag, decided inside tmux."""
        pane = self._pane(agent)
        ours = f"#{{&&:#{{==:#{{pane_dead}},0}},#{{==:#{{{TAG}}},{self._boot_id}/{agent.id}}}}}"
        guarded = " ; ".join(commands)
        line = f'if-shell -F -t {pane} "{ours}" {quote(guarded)} "display-message -p {_REFUSED}"'
        replies = await self._control.command(*([before] if before else []), line)
        if _REFUSED in replies:
            await agent.until(lambda: False, 2.0)
            raise agent.failure()

    def _pane(self, agent: RunningAgent) -> str:
        """Pane ids start again with every tmux server: one of another server may be anybody's here."""
        if agent.pane is None or agent.pane.boot_id != self._boot_id:
            raise agent.failure()
        return agent.pane.pane_id


def _paste_file(agent: RunningAgent) -> Path:
    return agent.folder.path / "paste"


def _composed(agent: RunningAgent, text: str, header: str | None) -> str:
    """What is typed, which then also lies in the paste file."""
    rules = agent.driver.typing
    typed = printable(agent.driver.compose(text, header if rules.header else None, agent.folder.path))
    if not rules.keeps_trailing_newlines:
        typed = typed.rstrip("\n")
    _paste_file(agent).write_bytes(typed.encode())
    return typed


def _taken(agent: RunningAgent, typed: str, enters: int) -> Taken | None:
    for fact in agent.submitted:
        if agent.driver.took(fact, typed):
            return Taken(turn=fact.turn, source=fact.source, enters=enters)
    return None
