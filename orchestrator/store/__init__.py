"""Where records live: `SqlStore` in a database file, `MemoryStore` in this process. Both keep `ports.Store`.

SQLModel, SQLAlchemy and Alembic are used here and nowhere else, and none of their exceptions leaves.
"""

from orchestrator.store.memory import MemoryStore
from orchestrator.store.sql import SqlStore

__all__ = ["MemoryStore", "SqlStore"]
