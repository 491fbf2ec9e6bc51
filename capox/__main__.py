"""The command line: `capox rack` runs the simulated rack. It chooses the command and does nothing else.

What a command needs is imported only when that command runs, so that each program can be installed without the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes:
        module: the module whose `main` takes the remaining arguments and returns the exit code.
        summary: one line for the list of commands.
        extra: the extra of the package that brings what the command needs; None when nothing beyond capox itself.
    """

    module: str
    summary: str
    extra: str | None = None

    def load(self) -> Callable[[Sequence[str]], int]:
        """Import the command.

        Raises:
            ModuleNotFoundError: something is not installed.
        """
        run: Callable[[Sequence[str]], int] = importlib.import_module(self.module).main
        return run


COMMANDS = {
    "ccm": Command("capox.ccm.main", "run the cloud controller manager of a workload cluster"),
    "provider": Command("capox.provider.main", "run the Cluster API provider's controllers"),
    "rack": Command("capox.rack.main", "run a simulated Oxide rack", extra="rack"),
}


def build_parser() -> argparse.ArgumentParser:
    """The parser that finds the command; the rest of the line is the command's own."""
    parser = argparse.ArgumentParser(
        prog="capox", description="Cluster API infrastructure provider and cloud controller manager for Oxide racks."
    )
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.summary, add_help=False)
    return parser


def with_command(arguments: Sequence[str]) -> list[str]:
    """The command line with a command in front, which is `provider` when a flag stands there.

    Oxide's own provider knows no commands; with this, a Deployment that was written for it starts this one.
    """
    is_flag = bool(arguments) and arguments[0].startswith("--") and arguments[0] != "--help"
    return ["provider", *arguments] if is_flag else list(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name.

    Args:
        arguments: those of the process when absent.

    Returns:
        The exit code.
    """
    chosen, rest = build_parser().parse_known_args(with_command(sys.argv[1:] if arguments is None else arguments))
    command = COMMANDS[chosen.command]
    try:
        run = command.load()
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == command.module.rpartition(".")[0]:
            sys.stderr.write(f"capox {chosen.command}: this installation of capox comes without it\n")
            return 2
        if command.extra is None or missing.split(".")[0] == "capox":
            raise
        print(  # noqa: T201 -- a command's complaint
            f"capox {chosen.command}: the Python package {missing} is not installed; "
            f"run: pip install 'capox[{command.extra}]'",
            file=sys.stderr,
        )
        return 2
    return run(rest)


if __name__ == "__main__":
    sys.exit(main())
