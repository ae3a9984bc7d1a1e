"""The registry: one small SQL database that says what exists, what is served and which loop is running."""

from flywheel.store.registry import schema
from flywheel.store.registry.database import Registry, Transaction

__all__ = ["Registry", "Transaction", "schema"]
