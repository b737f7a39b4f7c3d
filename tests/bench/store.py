"""How many durable changes a second the store makes: compare-and-swaps of a thread, each with an event."""

import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import msgspec

from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.identity import SERVICE
from orchestrator.domain.thread import Origin, Thread
from orchestrator.ports import Tx
from orchestrator.store import MemoryStore, SqlStore

SECONDS = 1.5
WRITERS = (1, 64)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure() -> list[dict[str, Any]]:
    """For each store and concurrency: `store`, `concurrency`, `changes_per_s`, `p50_ms`, `p99_ms`."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHANGEOVER_BENCH_DIR")) as folder:
        stores = {"sqlite": SqlStore(Path(folder) / "bench.db"), "memory": MemoryStore()}
        return [
            anyio.run(_measure, name, store, count) for name, store in stores.items() for count in WRITERS
        ]


async def _measure(name: str, store: SqlStore | MemoryStore, writers: int) -> dict[str, Any]:
    await store.open()
    took: list[float] = []
    for n in range(writers):
        thread = Thread(id=f"t{writers}_{n}", origin=Origin.RELAY, sender=SERVICE, created_at=NOW)
        await store.write(lambda tx, thread=thread: tx.insert_thread(thread))
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for n in range(writers):
            tasks.start_soon(_keep_changing, store, f"t{writers}_{n}", began + SECONDS, took)
    seconds = time.perf_counter() - began
    await store.close()
    took.sort()
    return {
        "store": name,
        "concurrency": writers,
        "changes_per_s": round(len(took) / seconds),
        "p50_ms": round(took[len(took) // 2] * 1000, 2),
        "p99_ms": round(took[len(took) * 99 // 100] * 1000, 2),
    }


async def _keep_changing(
    store: SqlStore | MemoryStore, thread_id: str, until: float, took: list[float]
) -> None:
    def change(tx: Tx) -> None:
        old = tx.thread(thread_id)
        assert old is not None
        tx.replace_thread(old, msgspec.structs.replace(old, version=old.version + 1))
        tx.append_event(NewEvent(type=EventType.MESSAGE, at=NOW, by=SERVICE, thread_id=thread_id))

    while (began := time.perf_counter()) < until:
        await store.write(change)
        took.append(time.perf_counter() - began)


if __name__ == "__main__":
    for line in measure():
        print(line)
