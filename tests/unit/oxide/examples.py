"""Answers of a rack, as the specification has them, for tests to change a field of."""

from __future__ import annotations

from typing import Any

PROJECT_ID = "9d3b8a1e-6f0a-4c51-8a55-0b6f6a3f7c10"
VPC_ID = "4b0b3a52-5b3e-4a63-9a83-6b1c4d2b7a01"
SUBNET_ID = "c0ffee00-1111-4222-8333-444455556666"
TIME = "2026-09-01T12:00:00Z"


def instance(number: int = 1, **changes: Any) -> dict[str, Any]:
    """An instance that runs; numbers in the order of ids."""
    return {
        "id": instance_id(number),
        "name": f"instance-{number}",
        "description": "Managed by capox",
        "time_created": TIME,
        "time_modified": TIME,
        "project_id": PROJECT_ID,
        "ncpus": 4,
        "memory": 8 * 2**30,
        "hostname": f"instance-{number}",
        "boot_disk_id": f"00000000-0000-4000-9000-{number:012x}",
        "run_state": "running",
        "time_run_state_updated": TIME,
        "time_last_auto_restarted": None,
        "auto_restart_enabled": True,
        "auto_restart_policy": None,
        "auto_restart_cooldown_expiration": None,
        "cpu_platform": None,
        "enable_jumbo_frames": False,
        **changes,
    }


def instance_id(number: int) -> str:
    """The id of an instance."""
    return f"00000000-0000-4000-8000-{number:012x}"


def floating_ip(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A floating IP that is attached to nothing."""
    return {
        "id": f"00000000-0000-4000-a000-{number:012x}",
        "name": f"floating-ip-{number}",
        "description": "",
        "time_created": TIME,
        "time_modified": TIME,
        "project_id": PROJECT_ID,
        "ip": f"198.51.100.{number}",
        "ip_pool_id": "00000000-0000-4000-b000-000000000001",
        "instance_id": None,
        **changes,
    }


def disk(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A disk that is attached to nothing."""
    return {
        "id": f"00000000-0000-4000-9000-{number:012x}",
        "name": f"disk-{number}",
        "description": "",
        "time_created": TIME,
        "time_modified": TIME,
        "project_id": PROJECT_ID,
        "size": 50 * 2**30,
        "block_size": 4096,
        "state": {"state": "detached"},
        "device_path": f"/mnt/disk-{number}",
        "disk_type": "distributed",
        "image_id": None,
        "snapshot_id": None,
        "read_only": False,
        **changes,
    }


def network_interface(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A primary interface of both families."""
    return {
        "id": f"00000000-0000-4000-c000-{number:012x}",
        "name": "net0",
        "description": "",
        "time_created": TIME,
        "time_modified": TIME,
        "instance_id": instance_id(number),
        "vpc_id": VPC_ID,
        "subnet_id": SUBNET_ID,
        "mac": "a8:40:25:f0:00:01",
        "primary": True,
        "ip_stack": {
            "type": "dual_stack",
            "value": {
                "v4": {"ip": f"172.30.0.{number + 4}", "transit_ips": []},
                "v6": {"ip": f"fd00::{number:x}", "transit_ips": []},
            },
        },
        **changes,
    }


def firewall_rule(name: str = "allow-ssh", **changes: Any) -> dict[str, Any]:
    """A rule that a VPC is born with."""
    return {
        "id": "00000000-0000-4000-d000-000000000001",
        "name": name,
        "description": "",
        "time_created": TIME,
        "time_modified": TIME,
        "vpc_id": VPC_ID,
        "status": "enabled",
        "direction": "inbound",
        "targets": [{"type": "vpc", "value": "default"}],
        "filters": {"hosts": None, "ports": ["22"], "protocols": [{"type": "tcp"}]},
        "action": "allow",
        "priority": 65534,
        **changes,
    }


def project(**changes: Any) -> dict[str, Any]:
    """A project."""
    return {
        "id": PROJECT_ID,
        "name": "demo",
        "description": "",
        "time_created": TIME,
        "time_modified": TIME,
        **changes,
    }
