"""What a screen of Claude Code shows: pure functions over captured text, proved on recorded screens.

The layout is read, not the wording of spinners, which changes with every release (measured on 2.1.332): the
composer is a `❯` line between two full rules at the bottom; a dialog replaces the composer and ends in a line
that names the keys (`Enter to confirm · Esc to cancel`). Only what stands below the conversation counts, so
that an answer or a task that quotes such lines is never taken for them.
"""

import re

from orchestrator.terminals.driver import Look, View

RULE = re.compile(r"^\s*─{8,}.*$")
WORD = re.compile(r"[^\W_]")
"""What a line of pictures or dashes has none of."""
KEYS = re.compile(r"\b(Esc to (cancel|exit|go back|close|skip)|Enter to (confirm|continue|select|submit))\b")
CHOICE = re.compile(r"^(\s+❯ \S|❯ \d+\. )")
INTERRUPT = "esc to interrupt"
SPINNER = re.compile(r"^[·✢✳✶✻✽*]\s+\S.*…")
RETRYING = re.compile(r"^[·✢✳✶✻✽*]\s+(?P<notice>.+ · retrying in .+)$")
LIMIT = re.compile(r"^(429|529|API error)\b|rate.?limit|overloaded|limit reached", re.IGNORECASE)
"""Of the errors that are tried again, those that mean to wait; an overload may show as a mere `API error`."""
OFFLINE = re.compile(r"^\s*Unable to connect to ")
PLACEHOLDERS = (
    re.compile(r"^Press up to edit queued messages$"),
    re.compile(r"^(Once fixed, resend|Resend) your message( to try again)?$"),
    re.compile(r'^Try "'),
)
ABOVE = 2
"""How many written lines above the composer can be the running turn's own notices."""
BELOW = 4
"""How many written lines below the composer can be its footer."""


def look(screen: str) -> Look:
    """Reads a captured screen."""
    lines = [line.replace("\u00a0", " ").rstrip() for line in screen.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    composer = _composer(lines)
    if composer is None:
        return _without_composer(lines)
    top, bottom = composer
    notices = _written(lines[:top])[-ABOVE:]
    draft = _draft(lines[top + 1 : bottom])
    footer = " ".join(lines[bottom + 1 :])
    retrying = next((found["notice"] for line in reversed(notices) if (found := RETRYING.match(line))), None)
    limited = retrying if retrying is not None and LIMIT.search(retrying) else None
    if draft:
        return Look(view=View.DRAFT, limited=limited)
    if INTERRUPT in footer or retrying is not None or any(SPINNER.match(line) for line in notices):
        return Look(view=View.BUSY, limited=limited)
    return Look(view=View.PROMPT)


def _written(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def _composer(lines: list[str]) -> tuple[int, int] | None:
    """The rules above and below the composer, if the composer is what stands at the bottom."""
    rules = [number for number, line in enumerate(lines) if RULE.match(line)]
    if len(rules) < 2:
        return None
    top, bottom = rules[-2], rules[-1]
    inside, below = lines[top + 1 : bottom], _written(lines[bottom + 1 :])
    if not inside or not inside[0].startswith("❯") or len(below) > BELOW:
        return None
    if any(KEYS.search(line) for line in below):
        return None
    return top, bottom


def _draft(inside: list[str]) -> str:
    """The unsent text in the composer; an empty one shows nothing or one of Claude Code's own hints."""
    text = "\n".join([inside[0].removeprefix("❯").strip(), *inside[1:]]).strip()
    return "" if any(hint.match(text) for hint in PLACEHOLDERS) else text


def _without_composer(lines: list[str]) -> Look:
    written = _written(lines)
    if not written:
        return Look(view=View.OTHER)
    if any(KEYS.search(line) for line in written[-2:]) or any(CHOICE.match(line) for line in lines):
        return Look(view=View.DIALOG, question=_question(lines))
    offline = [number for number, line in enumerate(lines) if OFFLINE.match(line)]
    if offline:
        return Look(view=View.DIALOG, question=_joined(lines[offline[-1] :]))
    return Look(view=View.OTHER)


def _question(lines: list[str]) -> str:
    """The dialog's text and choices, without the mark of the choice that the cursor is on.

    So the text stays the same while a person moves the cursor, and changes when something else is asked.
    """
    cursors = [number for number, line in enumerate(lines) if CHOICE.match(line)]
    below = cursors[-1] if cursors else len(lines)
    rules = [number for number, line in enumerate(lines[:below]) if RULE.match(line)]
    return _joined(lines[rules[-1] + 1 if rules else 0 :])


def _joined(lines: list[str]) -> str:
    kept = [
        line.strip().removeprefix("❯").strip()
        for line in lines
        if WORD.search(line) and not KEYS.search(line)
    ]
    return "\n".join(line for line in kept if not line.startswith("Tip: "))
