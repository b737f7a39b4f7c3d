"""What to paste so that one's own agent CLI has the tools, with the settings that let calls be long.

Without those settings the CLIs cut or put aside a call that takes minutes. No token is ever printed.
"""

import json
import shlex
from collections.abc import Callable, Sequence

from orchestrator.wire import MAX_TIMEOUT

CALL_SECONDS = MAX_TIMEOUT + 60
"""Longer than the longest wait, so that the answer comes from the service and never from the client."""

_FOLDER = """\
# (Over HTTP nobody knows in which folder you work: the profiles you use need a working_directory, or the
# service CHANGEOVER_ENABLE_WORKING_DIRECTORY=true, so that each call can name one.)"""

CLIS = ("claude", "codex", "gemini")


def print_config(
    cli: str,
    *,
    url: str,
    token_file: str,
    command: Sequence[str] = ("changeover", "mcp"),
    home: str | None = None,
) -> str:
    """The text for `cli`, both ways of connecting. `home` is named where it is not the default one.

    Raises `KeyError` for a CLI that is not one of `CLIS`.
    """
    return _TEXTS[cli](url.rstrip("/") + "/mcp", token_file, list(command), home)


def _claude(url: str, token_file: str, command: list[str], home: str | None) -> str:
    common = {"timeout": CALL_SECONDS * 1000, "alwaysLoad": True}
    stdio = {"type": "stdio", "command": command[0], "args": command[1:], "env": _env(home), **common}
    bearer = {"Authorization": "Bearer ${CHANGEOVER_TOKEN}"}
    http = {"type": "http", "url": url, "headers": bearer, **common}
    return f"""\
# Claude Code. Over stdio, in .mcp.json of the project (or: claude mcp add-json --scope user changeover '…'):
{_json({"mcpServers": {"changeover": stdio}})}

# Or over HTTP, with the token in the environment of the shell that starts claude:
{_FOLDER}
{_export(token_file)}
{_json({"mcpServers": {"changeover": http}})}

# Either way, in ~/.claude/settings.json, so that long calls are neither put aside nor cut:
{_json({"env": {"CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0", "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "0"}})}
"""


def _codex(url: str, token_file: str, command: list[str], home: str | None) -> str:
    env = "".join(f"env = {{ {name} = {json.dumps(value)} }}\n" for name, value in _env(home).items())
    return f"""\
# Codex. Over stdio, in ~/.codex/config.toml:
[mcp_servers.changeover]
command = {json.dumps(command[0])}
args = {json.dumps(command[1:])}
{env}tool_timeout_sec = {CALL_SECONDS}

# Or over HTTP, with the token in the environment of the shell that starts codex:
{_FOLDER}
# {_export(token_file)}
[mcp_servers.changeover]
url = {json.dumps(url)}
bearer_token_env_var = "CHANGEOVER_TOKEN"
tool_timeout_sec = {CALL_SECONDS}
"""


def _gemini(url: str, token_file: str, command: list[str], home: str | None) -> str:
    common = {"timeout": CALL_SECONDS * 1000}
    stdio = {"command": command[0], "args": command[1:], "env": _env(home), **common}
    http = {"httpUrl": url, "headers": {"Authorization": "Bearer $CHANGEOVER_TOKEN"}, **common}
    return f"""\
# Gemini CLI. Over stdio, in ~/.gemini/settings.json:
{_json({"mcpServers": {"changeover": stdio}})}

# Or over HTTP, with the token in the environment of the shell that starts gemini:
{_FOLDER}
{_export(token_file)}
{_json({"mcpServers": {"changeover": http}})}
"""


def _env(home: str | None) -> dict[str, str]:
    return {"CHANGEOVER_HOME": home} if home else {}


def _export(token_file: str) -> str:
    return f'export CHANGEOVER_TOKEN="$(cat {shlex.quote(token_file)})"'


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


_TEXTS: dict[str, Callable[[str, str, list[str], str | None], str]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
}
