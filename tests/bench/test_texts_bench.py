"""Large texts, in and out over MCP, byte for byte: an answer is read to its end, page by page."""

import pytest
from mcp import Client as McpClient

from tests.bench.callers import hand_over, http_client, tool
from tests.bench.conftest import Record
from tests.live import LiveService

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

MEGABYTE = 1_000_000
LINES, LONG_LINE = 12_000, 100_000


async def whole(client: McpClient, handoff_id: str) -> str:
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await tool(client, "read_output", {"handoff_id": handoff_id, "offset": offset})
        assert not page.is_error, page.text
        pages.append(page.text)
        offset = page.facts.get("next_offset")
    return "".join(pages)


def differing(sent: str, came: str) -> int:
    """How many bytes are not what and where they were."""
    before, after = sent.encode(), came.encode()
    return abs(len(before) - len(after)) + sum(a != b for a, b in zip(before, after, strict=False))


async def test_large_texts_travel_byte_for_byte(live: LiveService, record: Record) -> None:
    live.profile("bench", f"driver: scripted\nworking_directory: {live.work}")
    message = "".join(f"{number:07d} Zeile ✓\tmit Tab\n" for number in range(MEGABYTE // 26))
    message = message.ljust(MEGABYTE, "x")
    lines = "\n".join(f"line {number}" for number in range(1, LINES + 1))
    long_line = "".join(f"{number:09d} " for number in range(LONG_LINE // 10))
    (live.work / "long.txt").write_text(long_line)
    cases = {
        "message of 1 MB in, and back": (message, message),
        "answer of 12,000 lines out": (f"@lines {LINES}", lines),
        "answer of one line of 100,000 characters out": (f"@file {live.work / 'long.txt'}", long_line),
    }
    async with http_client(live) as client:
        for name, (sent, expected) in cases.items():
            answer = await hand_over(client, sent)
            assert not answer.is_error, answer.text
            came = await whole(client, answer.facts["handoff_id"])
            record(name, answer.seconds, "s")
            record(f"{name}: differing", differing(expected, came), "bytes", 0)
