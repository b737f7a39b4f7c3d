"""The `claude_code` driver: Claude Code in its interactive form. Measured on 2.1.332.

Everything is given for the one start: hooks and permissions by `--settings`, the profile's prompt by
`--append-system-prompt-file`, our tools by `--mcp-config`. The user's own configuration is not touched.

What is known comes from hooks, each of which spools the CLI's own JSON; the answer of a turn is read from the
transcript that the Stop hook names (`claude_code_transcript` says why), and the screen (`claude_code_screen`)
tells only what no hook does: the start-up dialogs, drafts, and rate limits while the CLI tries again.
"""

import json
import re
import shlex
import unicodedata
from pathlib import Path
from typing import Any

from orchestrator.domain.agent import AgentFact, Source
from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import Launch, Look, Readiness, SpoolEntry, TypingRules
from orchestrator.terminals.drivers import claude_code_hooks as hooks
from orchestrator.terminals.drivers import claude_code_screen
from orchestrator.terminals.drivers import claude_code_transcript as transcript

SERVER = "changeover"
"""What our MCP server is called there: the model sees its tools as `mcp__changeover__…`."""

_SPOOL = Path(__file__).parent.parent / "hooks" / "spool.sh"
_SETTLE = 0.15
"""Seconds from the Stop hook until the transcript holds the turn's last message: at most 0.12 measured on an
idle machine, more on a busy one (`claude_code_hooks` looks again then)."""
_HOLD = 0.5
"""Seconds the first prompt is held back: our tools are there 0.05 to 0.45 s after SessionStart, and a first
request that goes out before has none of them. MCP_CONNECTION_NONBLOCKING=0 changes that for `-p` only."""
_LONG = 24 * 3600 * 1000
_ENV = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY": "1",
    # A suggested next prompt stands in the composer and looks like a draft.
    "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",
    # On the alternate screen nothing is left to read when the program ends.
    "CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1",
}
_MCP_ENV = {
    # A tool call of ours lasts as long as the work: by default it is moved to the background after 120 s and
    # given up after 300 s without progress.
    "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0",
    "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "0",
    "MCP_TIMEOUT": "60000",
}
_TOOL = re.compile(r"^(?P<name>[A-Za-z_][\w.-]*)(?P<rule>\(.*\))?$", re.DOTALL)
_PASTED = re.compile(r"</?pasted_content[^>]*>")


class ClaudeCode:
    """See the module's docstring; the port's contract is that of `Driver`."""

    name = "claude_code"
    program = "claude"
    typing = TypingRules()
    readiness = Readiness.SCREEN
    """Its prompt, since start-up dialogs come before any hook; SessionStart tells READY too."""
    env_names = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CONFIG_DIR",
        "DISABLE_TELEMETRY",
        # Says that this machine is a sandbox; without it root may not skip permissions.
        "IS_SANDBOX",
        "NODE_EXTRA_CA_CERTS",
    )

    def check(self, spec_problems: list[str], spec: AgentSpec) -> None:
        for tool in spec.profile.allowed_tools or []:
            if _TOOL.match(tool) is None:
                spec_problems.append(f"Claude Code knows no tool {tool!r}: write Name or Name(rule).")

    def prepare(self, spec: AgentSpec, folder: Path) -> Launch:
        profile = spec.profile
        settings = json.dumps(_settings(profile, folder))
        arguments = ["--settings", _write(folder / "settings.json", settings)]
        if profile.system_prompt.strip():
            prompt = _write(folder / "system_prompt.md", profile.system_prompt)
            arguments += ["--append-system-prompt-file", prompt]
        if profile.model is not None:
            arguments += ["--model", profile.model]
        arguments += _tool_arguments(profile)
        if profile.mcp:
            arguments += ["--mcp-config", _write(folder / "mcp.json", json.dumps(_mcp(spec)))]
        if _only_our_servers(profile):
            arguments.append("--strict-mcp-config")
        env = {**_ENV, **(_MCP_ENV if profile.mcp else {})}
        return Launch(argv=[*(profile.command or [self.program]), *arguments], env=env)

    def compose(self, text: str, header: str | None, folder: Path) -> str:
        """The header guards a leading `/` or `!`; without one a blank does.

        Enter behind a backslash makes a new line instead of submitting, so a line break is put there. The
        composer turns each tab into four blanks and composes characters (NFC); nothing can be done about it.
        """
        typed = f"{header}\n{text}" if header else text
        if typed.startswith(("/", "!", "#", "?")):
            typed = f" {typed}"
        return f"{typed}\n" if typed.endswith("\\") else typed

    def interpret(self, terminal_id: str, entry: SpoolEntry, folder: Path) -> list[AgentFact]:
        said = hooks.fields(entry.event, entry.payload, entry.at)
        if said is None:
            return []
        known: dict[str, Any] = {"source": Source.HOOK, **said}
        return [AgentFact(terminal_id=terminal_id, at=entry.at, **known)]

    def took(self, fact: AgentFact, typed: str) -> bool:
        """The event's prompt is what was typed, but for blanks, composed characters and invisible ones.

        Measured up to 1 MB; older releases wrapped long pastes in tags.
        """
        return fact.text is not None and _core(fact.text) == _core(typed)

    def look(self, screen: str) -> Look:
        return claude_code_screen.look(screen)

    def partial(self, folder: Path) -> str | None:
        """From the transcript, which holds a block of text once it is whole."""
        newest = _newest_transcript(folder)
        return None if newest is None else transcript.running(newest)

    def version_argv(self) -> list[str] | None:
        return [self.program, "--version"]


def _write(path: Path, content: str) -> str:
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(content, encoding="utf-8")
    return str(path)


def _settings(profile: Profile, folder: Path) -> dict[str, Any]:
    hold = shlex.quote(str(folder / "first_prompt"))
    commands = {
        "SessionStart": [_spool("SessionStart")],
        "UserPromptSubmit": [_spool("UserPromptSubmit")],
        "PermissionRequest": [_spool("PermissionRequest")],
        "Stop": [f"sleep {_SETTLE}; exec {_spool('Stop')}"],
        "StopFailure": [_spool("StopFailure")],
    }
    if profile.mcp:
        # Hooks of one event run side by side: the submit event is not held back with it.
        commands["UserPromptSubmit"].append(f"[ -e {hold} ] || {{ : >{hold}; sleep {_HOLD}; }}")
    settings: dict[str, Any] = {"hooks": {event: _hooks(run) for event, run in commands.items()}}
    allow = [*(profile.allowed_tools or []), *([f"mcp__{SERVER}"] if profile.mcp else [])]
    if allow:
        settings["permissions"] = {"allow": allow}
    return settings


def _hooks(commands: list[str]) -> list[dict[str, Any]]:
    return [{"hooks": [{"type": "command", "command": each, "timeout": 30} for each in commands]}]


def _spool(event: str) -> str:
    return f"{shlex.quote(str(_SPOOL))} {event}"


def _tool_arguments(profile: Profile) -> list[str]:
    """`--tools` is what really takes built-in tools away; `dontAsk` denies what no rule allows.

    `--allowed-tools` alone only saves the question: the others are asked about or judged by the CLI.
    """
    if profile.allowed_tools is None:
        return []
    names = [found["name"] for tool in profile.allowed_tools if (found := _TOOL.match(tool))]
    built_in = [name for name in dict.fromkeys(names) if not name.startswith("mcp__")]
    return ["--tools", ",".join(built_in), "--permission-mode", "dontAsk"]


def _only_our_servers(profile: Profile) -> bool:
    """The user's own MCP servers are left out, unless the profile names one of their tools."""
    allowed = profile.allowed_tools
    foreign = any(
        tool.startswith("mcp__") and not tool.startswith(f"mcp__{SERVER}") for tool in allowed or []
    )
    return not foreign and (profile.mcp or allowed is not None)


def _mcp(spec: AgentSpec) -> dict[str, Any]:
    server = {
        "type": "http",
        "url": f"{spec.url}/mcp",
        "headers": {"Authorization": f"Bearer {spec.token}"},
        "alwaysLoad": True,
        "timeout": _LONG,
    }
    return {"mcpServers": {SERVER: server}}


def _newest_transcript(folder: Path) -> Path | None:
    """As the newest submit event in the spool names it: `/clear` begins a new one."""
    events = sorted((folder / "spool").glob("*.UserPromptSubmit"))
    event = hooks.read(SpoolEntry.read(events[-1]).payload) if events else None
    return None if event is None else event.transcript


def _core(text: str) -> str:
    """What typing, wrapping and trimming leave as it is."""
    plain = unicodedata.normalize("NFC", _PASTED.sub("", text))
    return "".join(char for char in plain if unicodedata.category(char)[0] not in "CZ")
