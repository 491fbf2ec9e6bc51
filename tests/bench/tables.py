"""What a bench has measured: verdicts on limits, and tables on a terminal and on a page. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table as RichTable

__all__ = [
    "MEGABYTE",
    "Table",
    "Verdict",
    "as_markdown",
    "limits_table",
    "megabytes",
    "number",
    "seconds",
    "show_tables",
]

MEGABYTE: Final = 1_000_000

_ROUNDING: Final = 1e-9


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A limit and what was measured.

    Attributes:
        subject: What it was measured on.
        what: What was measured.
        measured: How much.
        limit: How much may be.
        is_exact: Whether less is as wrong as more: of writes too few leave something undone.
    """

    subject: str
    what: str
    measured: float
    limit: float
    is_exact: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the limit is kept."""
        if self.is_exact:
            return abs(self.measured - self.limit) <= _ROUNDING
        return self.measured <= self.limit + _ROUNDING


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: What it is about.
        columns: Their headings; the first column names the rows.
        rows: The cells.
        text: What has to be said of it, on a page.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: str = ""


def limits_table(subject: str, verdicts: Iterable[Verdict]) -> Table:
    """The table of what has to be reached.

    Args:
        subject: What the first column names.
        verdicts: What was judged.
    """
    rows = tuple(
        (
            each.subject,
            each.what,
            number(each.measured),
            ("exactly " if each.is_exact else "at most ") + number(each.limit),
            "yes" if each.is_met else "NO",
        )
        for each in verdicts
    )
    return Table(
        "What has to be reached",
        (subject, "what", "measured", "limit", "reached"),
        rows,
        "`make bench` ends with an error when one of these is missed.",
    )


def show_tables(tables: Iterable[Table], console: Console) -> None:
    """Print tables."""
    for table in tables:
        shown = RichTable(title=table.title, title_justify="left")
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)


def as_markdown(tables: Iterable[Table]) -> list[str]:
    """Give the lines of a page with these tables, each under its title."""
    lines = []
    for table in tables:
        lines += ["", f"## {table.title}", ""]
        lines += [*table.text.strip().splitlines(), ""] if table.text else []
        rows = [table.columns, ("---", *["---:"] * (len(table.columns) - 1)), *table.rows]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines


def number(value: float) -> str:
    """A number with as many decimals as it needs, three at most."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def seconds(value: float | None) -> str:
    """A time; empty when it was not measured."""
    return "" if value is None else f"{value:.1f} s"


def megabytes(value: int) -> str:
    """An amount of memory."""
    return f"{value / MEGABYTE:.0f} MB"
