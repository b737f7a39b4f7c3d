"""The tree of expected failures, each with its stable code.

Every failure a caller can meet is one of these; exceptions of outside libraries end at the adapter that
uses them. The code is part of every interface (HTTP, MCP, command line) and never changes; the detail is a
sentence for people that names what was wrong, what is allowed and what to do. Which HTTP status a class
has is said in one table, in `api/problems.py`.
"""

from typing import Any, ClassVar


class ChangeoverError(Exception):
    """An expected failure. `detail` is for people, `facts` are JSON values for programs."""

    code: ClassVar[str] = "internal"

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts: dict[str, Any] = facts


class InvalidParams(ChangeoverError):
    """The request is malformed; `path` in the facts names the offending field where there is one."""

    code = "invalid_params"


class TooLarge(InvalidParams):
    code = "too_large"


class Unauthenticated(ChangeoverError):
    code = "unauthenticated"


class Forbidden(ChangeoverError):
    """The credential is valid and its scope does not reach this operation."""

    code = "forbidden"


class NotFound(ChangeoverError):
    code = "not_found"


class ThreadNotFound(NotFound):
    """No such thread, or the caller is not a participant: the two are not told apart."""

    code = "thread_not_found"


class TerminalNotFound(NotFound):
    code = "terminal_not_found"


class UnknownProfile(NotFound):
    """No profile of that name; the detail lists the known ones."""

    code = "unknown_profile"


class InvalidProfile(ChangeoverError):
    """A profile file is broken; `problems` in the facts lists each with its line."""

    code = "invalid_profile"


class Refused(ChangeoverError):
    """The request is well formed and the state of things forbids it (HTTP 409)."""

    code = "refused"


class ThreadTerminal(Refused):
    """The thread is completed or cancelled: only reading is left."""

    code = "thread_terminal"


class InvalidTransition(Refused):
    code = "invalid_transition"


class StateChanged(Refused):
    """Another one won the race; the facts say who and when."""

    code = "state_changed"


class DuplicateIdempotencyKey(Refused):
    """The key was used with another payload. The request had no effect."""

    code = "duplicate_idempotency_key"


class NotAuthorizedTransition(ChangeoverError):
    """The caller takes part in the thread, in a role that this move is not open to."""

    code = "not_authorized_transition"


class HandoffSelf(Refused):
    """An agent would hand work to its own profile; `chain` in the facts names the agents."""

    code = "handoff_self"


class HandoffCycle(Refused):
    """Agents would wait for one another in a circle; `chain` in the facts names them in order."""

    code = "handoff_cycle"


class HandoffTooDeep(Refused):
    """The chain of handoffs is longer than the limit; `chain` and `limit` are in the facts."""

    code = "handoff_too_deep"


class NameTaken(Refused):
    """A living agent has that name."""

    code = "name_taken"


class TerminalFailure(ChangeoverError):
    """The agent's terminal let the caller down. The base of what can go wrong between text and answer."""

    code = "terminal_failed"


class StartFailed(TerminalFailure):
    """The agent never became ready: missing program, early death, start limit; with its last lines."""

    code = "start_failed"


class TerminalDead(TerminalFailure):
    """The agent's process or pane is gone; `exit_status` or `signal` and `last_lines` are in the facts."""

    code = "terminal_dead"


class TerminalLost(TerminalFailure):
    """The tmux server is gone, and the terminal with it."""

    code = "terminal_lost"


class TerminalBusy(TerminalFailure):
    """Nothing may be typed now: a dialog, a draft of somebody else, or a running turn. Nothing was typed."""

    code = "terminal_busy"


class NotSubmitted(TerminalFailure):
    """The text stands in the agent's composer and was not taken, for all the tries allowed."""

    code = "not_submitted"


class Uncertain(TerminalFailure):
    """Whether the agent took the text cannot be told. It is never typed again by itself."""

    code = "uncertain"


class Interrupted(ChangeoverError):
    """The service is stopping. The handoff goes on or is settled at the next start; ask again by id."""

    code = "interrupted"


class Unavailable(ChangeoverError):
    """No service answers at the address."""

    code = "unavailable"
