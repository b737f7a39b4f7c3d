"""What is printed to connect an agent CLI can be pasted as it stands, and lets calls be long."""

import json
import re
import tomllib
from typing import Any

import pytest

from mcp_tools.print_config import CALL_SECONDS, CLIS, print_config
from orchestrator.wire import MAX_TIMEOUT

WHERE = {"url": "http://127.0.0.1:7413", "token_file": "/data/of mine/agent.token"}


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(found) for found in re.findall(r"^\{$.*?^\}$", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("cli", CLIS)
def test_both_ways_are_printed_and_the_token_is_read_from_its_file(cli: str) -> None:
    text = print_config(cli, **WHERE, home="/elsewhere")
    assert "http://127.0.0.1:7413/mcp" in text
    assert "CHANGEOVER_TOKEN=\"$(cat '/data/of mine/agent.token')\"" in text
    assert "/elsewhere" in text
    assert "CHANGEOVER_HOME" not in print_config(cli, **WHERE)


def test_what_is_printed_for_claude_keeps_long_calls_in_the_foreground() -> None:
    stdio, http, environment = objects(print_config("claude", **WHERE))
    server = stdio["mcpServers"]["changeover"]
    assert (server["command"], server["args"]) == ("changeover", ["mcp"])
    assert server["timeout"] == http["mcpServers"]["changeover"]["timeout"] == CALL_SECONDS * 1000
    assert server["alwaysLoad"] is True
    assert environment["env"]["CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"] == "0"


def test_what_is_printed_for_codex_is_toml_with_a_timeout_above_the_longest_wait() -> None:
    text = print_config("codex", **WHERE, command=["/opt/my tools/changeover", "mcp"], home="/elsewhere")
    stdio, http = (
        tomllib.loads(f"#{part}")["mcp_servers"]["changeover"] for part in text.split("# Or over HTTP")
    )
    assert (stdio["command"], stdio["args"]) == ("/opt/my tools/changeover", ["mcp"])
    assert stdio["env"] == {"CHANGEOVER_HOME": "/elsewhere"}
    assert http["bearer_token_env_var"] == "CHANGEOVER_TOKEN"
    assert stdio["tool_timeout_sec"] == http["tool_timeout_sec"] == CALL_SECONDS > MAX_TIMEOUT


def test_what_is_printed_for_gemini_is_json_for_its_settings() -> None:
    stdio, http = objects(print_config("gemini", **WHERE))
    assert stdio["mcpServers"]["changeover"]["timeout"] == CALL_SECONDS * 1000
    assert http["mcpServers"]["changeover"]["httpUrl"] == "http://127.0.0.1:7413/mcp"


def test_an_unknown_cli_is_an_error() -> None:
    with pytest.raises(KeyError):
        print_config("emacs", **WHERE)
