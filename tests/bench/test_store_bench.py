"""The store's own speed, to look at: what it is worth depends on the disk."""

import pytest

from tests.bench.conftest import Record
from tests.bench.store import measure

pytestmark = pytest.mark.bench


def test_the_store_says_how_many_changes_it_makes(record: Record) -> None:
    for each in measure():
        name = f"store {each['store']}, {each['concurrency']} at once"
        record(f"{name}: durable changes", each["changes_per_s"], "1/s")
        record(f"{name}: p99", each["p99_ms"], "ms")
