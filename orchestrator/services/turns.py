"""When a blocking handoff is done: which turn's end counts, what holds it open, and what then helps.

Done means the end of the very turn that took our text, with no open child handoff and no background task of
the agent's own; or, where the profile demands it, the agent's own report. A quiet screen completes nothing.
"""

from orchestrator.domain.agent import AgentFact, FactKind
from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.identity import SERVICE
from orchestrator.domain.profile import Completion, Profile
from orchestrator.domain.terminal import Delivery, DeliveryState, Terminal
from orchestrator.domain.thread import Change, Move, Outcome, Status, Thread
from orchestrator.ports import Tx
from orchestrator.services.context import ServiceContext
from orchestrator.services.moves import BY_SERVICE, failed, move, need, settle_failure, succeeded

_OPEN = (Status.PENDING, Status.ACCEPTED)
_MAX_REMINDERS = 2
"""How often an agent is reminded to report; after that the handoff waits for a person or its deadline."""


def keeps_terminal(thread: Thread) -> bool:
    """The answer is unsure: the terminal stays, over restarts too, for a person to look at and to close."""
    return bool((thread.result_facts or {}).get("unsure"))


class Turns:
    """Judges the turns of one terminal's agent."""

    def __init__(self, context: ServiceContext, terminal: Terminal, profile: Profile) -> None:
        self._context = context
        self._terminal = terminal
        self._profile = profile
        self._held = False
        self._reminders = 0

    async def ended(self, fact: AgentFact, event: NewEvent | None) -> bool:
        """Records a turn's end by `event`, and settles the handoff if it is its end too.

        True if there is a new text to deliver.
        """
        thread_id = self._terminal.thread_id

        def work(tx: Tx) -> bool:
            if event is not None:
                tx.append_event(event)
            return thread_id is not None and self._judge(tx, thread_id, fact)

        held = await self._context.store.write(work)
        if thread_id is None:
            return False
        self._held = held
        if not held:
            return False
        thread = await self._context.store.read(lambda tx: need(tx, thread_id))
        return thread.open and await self.nudge(thread)

    def _judge(self, tx: Tx, thread_id: str, fact: AgentFact) -> bool:
        """True if the turn's end is held back."""
        thread = need(tx, thread_id)
        if not self._held and not self._is_our_turn(tx, fact):
            return False
        if not thread.open:
            tx.append_event(
                self._context.event(
                    EventType.LATE_REPORT,
                    thread_id=thread_id,
                    terminal_id=self._terminal.id,
                    turn=fact.turn,
                    chars=len(fact.answer or ""),
                )
            )
            return False
        if fact.kind is FactKind.TURN_FAILED:
            error = fact.error or "the turn failed"
            settle_failure(tx, self._context, thread_id, failed("agent_failed", error, fact.answer))
            return False
        children = [child.id for child in tx.threads(parent_id=thread_id, statuses=_OPEN)]
        report = self._profile.completion is Completion.REPORT
        if children or fact.background or report:
            tx.append_event(
                self._context.event(
                    EventType.HELD,
                    thread_id=thread_id,
                    terminal_id=self._terminal.id,
                    children=children,
                    background=fact.background,
                    report=report,
                )
            )
            return True
        self._complete(tx, thread, fact)
        return False

    def _is_our_turn(self, tx: Tx, fact: AgentFact) -> bool:
        delivered = [
            each for each in tx.deliveries(self._terminal.id) if each.state is DeliveryState.DELIVERED
        ]
        if not delivered:
            return False
        turn = delivered[-1].turn
        return turn is None or fact.turn is None or turn == fact.turn

    def _complete(self, tx: Tx, thread: Thread, fact: AgentFact) -> None:
        facts: dict[str, object] = {"source": fact.source}
        if fact.exit_status is not None:
            facts["exit_status"] = fact.exit_status
        if fact.answer is None:
            facts["unsure"] = True
            facts["warning"] = (
                "the agent ended its turn and its answer could not be read:"
                f" look at the terminal {self._terminal.id}, which was kept"
            )
        change = succeeded(fact.answer or "", facts)
        move(tx, self._context, thread, Move.COMPLETE, BY_SERVICE, change)

    async def nudge(self, thread: Thread) -> bool:
        """Queues a text for an agent that ended its turn too early, when it can go on. True if it did."""
        if not self._held:
            return False
        if not await self._context.store.write(lambda tx: self._add_nudge(tx, thread)):
            return False
        self._held = False
        return True

    def _add_nudge(self, tx: Tx, thread: Thread) -> bool:
        children = tx.threads(parent_id=thread.id)
        if any(child.open for child in children):
            return False
        uncollected = [child for child in children if child.collected_at is None]
        if uncollected:
            ended = ", ".join(f"{child.id} ({child.outcome or child.status})" for child in uncollected)
            text = (
                f"[changeover] The handoffs you gave have ended: {ended}. Read their answers with"
                " wait_handoff or read_output, then finish your task."
            )
        elif self._profile.completion is Completion.REPORT and self._reminders < _MAX_REMINDERS:
            self._reminders += 1
            text = (
                f"[changeover] The handoff {thread.id} is done only when you report its result: call"
                " complete_handoff with it."
            )
        else:
            return False
        tx.insert_delivery(
            Delivery(
                id=self._context.ids.new("dlv"),
                terminal_id=self._terminal.id,
                thread_id=thread.id,
                by=SERVICE,
                created_at=self._context.now(),
                text=text,
            )
        )
        return True

    async def time_out(self, thread: Thread) -> None:
        """The deadline came: the handoff ends with what there is so far."""
        partial = await self._context.terminals.partial(self._terminal.id)

        def work(tx: Tx) -> None:
            current = need(tx, thread.id)
            if current.status is Status.ACCEPTED:
                error = {"code": "timed_out", "detail": "stopped at its deadline"}
                change = Change(
                    outcome=Outcome.TIMED_OUT, result=partial, result_facts={"error": error, "partial": True}
                )
                move(tx, self._context, current, Move.COMPLETE, BY_SERVICE, change)
            elif current.open:
                move(tx, self._context, current, Move.CANCEL, BY_SERVICE, Change(cancel_reason="expired"))

        await self._context.store.write(work)
