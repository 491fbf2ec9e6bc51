"""`python -m hack.docker up | down | status`: a Docker engine for the rack's machines.

`up` prints the line that lets `docker` and `capox rack --guests docker` find it. It starts an engine only when none
answers; `down` stops only the one that `up` started.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from hack.controlplane.progress import PlainReporter
from hack.docker.engine import DockerError, Engine, answering_host

CANNOT: Final = 2
"""The exit code where there is no engine and none can be had, so that a caller can do without."""


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m hack.docker", description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["up", "down", "status"])
    options = parser.parse_args(arguments)
    engine = Engine(environ)
    if options.command == "down":
        print("Stopped" if engine.stop() else "Nothing was running")
        return 0
    if options.command == "status":
        found = answering_host(environ) or answering_host({**environ, "DOCKER_HOST": engine.host})
        print(found or "No Docker engine answers")
        return 0 if found else 1
    try:
        # Standard output has nothing but the line for the shell.
        host = engine.ensure(PlainReporter(sys.stderr))
    except DockerError as error:
        print(error, file=sys.stderr)
        return CANNOT
    print(f"export DOCKER_HOST={host}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
