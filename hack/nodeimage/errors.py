"""What can go wrong, in words for the person at the keyboard."""

from __future__ import annotations


class NodeImageError(Exception):
    """The node image cannot be made. The message says what was found, what is needed and what to do about it."""
