"""Memoir for Python: report, query and subscribe through memoird (memoir.client), and read the books in which
processes account their memory (memoir.book)."""

from .client import Client, Result, Status, Subscription
from .wire import Error, Unreachable

__all__ = ["Client", "Error", "Result", "Status", "Subscription", "Unreachable"]
