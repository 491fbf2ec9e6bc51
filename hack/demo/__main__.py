"""`python -m hack.demo up | down`: what `make demo` and `make demo-down` run.

`up` brings up a management cluster and a simulated rack, starts the provider beside them, applies a cluster, shows how
it comes to be, and leaves everything running, with the lines to go on with. It needs no terminal. `down` leaves
nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.progress import reporter_for
from hack.controlplane.state import NamedControlPlane
from hack.demo.down import take_down
from hack.demo.memory import Memory, recall
from hack.demo.up import bring_up

NAME: Final = "demo"
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command that the arguments name.

    Returns:
        The exit code: 0; 1 after an error that has been printed; 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m hack.demo", description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["up", "down"], nargs="?", default="up")
    parser.add_argument(
        "--guests",
        choices=["auto", "docker", "none"],
        default="auto",
        help="what runs in the rack's instances: machines, nothing, or machines where they can be had (default)",
    )
    parser.add_argument(
        "--abandon",
        action="store_true",
        help="with down: stop everything here, and leave what is in the management cluster that KUBECONFIG has named",
    )
    options = parser.parse_args(arguments)
    if options.abandon and options.command != "down":
        parser.error("--abandon goes with down")
    named = NamedControlPlane(NAME, environ)
    try:
        with named.alone():
            if options.command == "up":
                return bring_up(named, environ, options.guests)
            stopped = take_down(named, environ, reporter_for(), is_abandoned=options.abandon)
            print(f"Stopped {', '.join(stopped)}" if stopped else "Nothing was running")
            return 0
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        is_left = named.running() or recall(named) != Memory()
        left = "`make demo-down` takes away what is there" if is_left else "nothing is left running"
        print(f"\nInterrupted; {left}", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
