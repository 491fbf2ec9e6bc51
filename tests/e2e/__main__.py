"""`python -m tests.e2e`: can machines be had on this computer at all? Says why not, and exits with 2, if they cannot.

The end-to-end tests are skipped where an engine or a program is missing. They fail where an engine answers and cannot
do what guests need; this tells such a computer from a mistake of ours, without any of our code.
"""

from __future__ import annotations

import os
import subprocess
import sys

from hack.docker.engine import Engine, answering_host
from tests.e2e import small_image

TRIAL_SECONDS = 120
CANNOT = 2

# What the rack's networks are made of, each once, in a container that is as strong as theirs.
_TRIAL = """
ip netns add trial
ip link add trial0 type veth peer name trial1 netns trial
ip netns exec trial nft -f - <<'END'
table ip trial {
  chain inward { type nat hook prerouting priority dstnat; policy accept; }
  chain through { type filter hook forward priority filter; policy drop; ct state established accept; }
}
END
ip netns exec trial conntrack -L
echo 1 >/proc/sys/net/ipv4/ip_forward
nsenter -t "$1" -n ip link show lo
"""


def main() -> int:
    """Try it."""
    own = {**os.environ, "DOCKER_HOST": Engine(os.environ).host}
    host = answering_host(os.environ) or answering_host(own)
    if host is None:
        return _cannot("no Docker engine of this computer answers")
    missing = small_image.missing_programs()
    if missing:
        return _cannot(f"not installed: {', '.join(missing)} (tests/e2e/packages.txt names the packages)")
    image = small_image.make(host)
    words = ["docker", "run", "--rm", "--privileged", "--pid", "host", "--network", "none", "--entrypoint", "/bin/sh"]
    try:
        done = subprocess.run(
            [*words, image, "-euc", _TRIAL, "trial", str(os.getpid())],
            env={**os.environ, "DOCKER_HOST": host},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _cannot(f"the engine at {host} does not run a container within {TRIAL_SECONDS} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return _cannot(f"the engine at {host} cannot run what guests need: {last}")
    sys.stdout.write(f"Machines can be had here, by the engine at {host}\n")
    return 0


def _cannot(why: str) -> int:
    sys.stdout.write(f"No machines can be had here: {why}\n")
    return CANNOT


if __name__ == "__main__":
    sys.exit(main())
