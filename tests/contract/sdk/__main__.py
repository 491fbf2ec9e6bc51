"""Run the SDK's programs against a rack; the exit code is 0 when every step passed."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from capox.rack import operations
from capox.rack.call import HANDLERS
from tests.contract.sdk import programs
from tests.rack_process import CONTROL_TOKEN, RackProcess

# How much of the rack's log is shown when something failed.
LOG_LINES = 40

CONFIG: dict[str, Any] = {
    "seed": 1,
    "timing": "quick",
    "listen": "127.0.0.1:0",
    "control": {"listen": "127.0.0.1:0", "token": CONTROL_TOKEN},
    "silos": [
        {
            "name": "lab",
            "users": [
                {"name": "admin", "role": "admin", "tokens": [{"token": "oxide-token-admin"}]},
                {"name": "viewer", "role": "viewer", "tokens": [{"token": "oxide-token-viewer"}]},
            ],
        },
        {
            "name": "small",
            "quotas": {"cpus": 1, "memory": "4 GiB", "storage": "1 GiB"},
            "users": [{"name": "small", "role": "admin", "tokens": [{"token": "oxide-token-small"}]}],
        },
    ],
    "ip_pools": [
        {"name": "public-v4", "ranges": ["198.51.100.0-198.51.100.63"], "silos": [{"silo": "lab", "default": True}]},
        {
            "name": "public-v6",
            "family": "v6",
            "ranges": ["2001:db8::-2001:db8::3f"],
            "silos": [{"silo": "lab", "default": True}],
        },
        {"name": "tiny", "ranges": ["203.0.113.7"], "silos": [{"silo": "small"}]},
    ],
    "subnet_pools": [
        {"name": "prefixes", "networks": ["192.0.2.0/24"], "silos": [{"silo": "lab", "default": True}]},
    ],
    "sleds": [{"count": 4, "cpus": 64, "memory": "256 GiB"}],
}


def main() -> int:
    """Build, serve, run, and sum up."""
    try:
        built = programs.build()
    except programs.BuildError as error:
        sys.stdout.write(f"{error}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="capox-sdk-") as directory, RackProcess(Path(directory), CONFIG) as rack:
        environment = {
            "OXIDE_HOST": rack.url,
            "OXIDE_TOKEN": "oxide-token-admin",
            "SDK_VIEWER_TOKEN": "oxide-token-viewer",
            "SDK_SMALL_TOKEN": "oxide-token-small",
        }
        results = [programs.run(built[package], environment) for package in programs.PACKAGES]
        results.append(_judge_rack(rack))
        passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
        if failed:
            log = rack.log_file.read_text().splitlines()[-LOG_LINES:]
            sys.stdout.write("\n".join(["The rack's last words:", *log, ""]))
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def _judge_rack(rack: RackProcess) -> programs.Result:
    """Whether the SDK reached every operation of the rack, and the rack kept to its document meanwhile."""
    counts = rack.control.counts()
    reached = {operation for operation, statuses in counts.items() if any(status[0] == "2" for status in statuses)}
    assert operations.session is not None, "the operations have to be imported to be known"
    checks = {
        "every operation of the rack has answered the SDK": sorted(HANDLERS.keys() - reached),
        "no answer was outside the document": rack.control.violations(),
    }
    for step, missing in checks.items():
        outcome = f"FAILED  rack  {step}; not so: {', '.join(missing)}" if missing else f"ok      rack  {step}"
        sys.stdout.write(f"{outcome}\n")
    failed = sum(bool(missing) for missing in checks.values())
    return programs.Result(len(checks) - failed, failed)


if __name__ == "__main__":
    sys.exit(main())
