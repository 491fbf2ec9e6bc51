"""The one way in which the demo asks a person."""

from __future__ import annotations

import sys

__all__ = ["is_person_there", "may"]


def is_person_there() -> bool:
    """Whether there is a terminal, with somebody who can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def may(question: str) -> bool:
    """Ask on a terminal whether to go on; elsewhere nobody can be asked, and it goes on.

    Args:
        question: what is asked, in whole sentences, after which `Go on? [Y/n]` is said.

    Returns:
        The answer. Enter is yes; the end of the input (Ctrl-D) is no.
    """
    if not is_person_there():
        return True
    try:
        answer = input(f"{question} Go on? [Y/n] ")
    except EOFError:
        # The next line would go on behind the question.
        print()
        return False
    return answer.strip().lower() in {"", "y", "yes"}
