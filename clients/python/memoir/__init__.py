"""Memoir for Python: read the books in which processes account their memory (see memoir.book)."""
