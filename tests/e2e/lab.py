"""A rack with guests, as its users run it, and what is looked at from outside of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

import httpx

from tests.e2e.small_image import IMAGE
from tests.integration.waiting import eventually
from tests.rack_process import CONFIG, RackProcess

# Several runs can be at work at a time; nothing of one meets what another has.
_NUMBER = os.getpid() % 200
NAME = f"e2e{_NUMBER}"
POOL = f"198.18.{_NUMBER}"
_PATH = "/cgi-bin/who"
UPLINK_HOST = f"100.65.{_NUMBER}.1"
USER_DATA_SECRET = "user-data-that-nobody-may-read"


class Lab:
    """A rack whose instances are containers, for as long as its context lasts.

    Args:
        directory: for the rack's files.
        docker_host: the engine.
        image: the guest image.
        changes: of the rack's configuration.
    """

    def __init__(self, directory: Path, docker_host: str, image: str, **changes: Any) -> None:
        self._environment = {**os.environ, "DOCKER_HOST": docker_host}
        guests = {"backend": "docker", "name": NAME, "image": image, "uplink": f"100.65.{_NUMBER}.0/30"}
        rack = CONFIG | {"guests": guests, "ip_pools": [_pool()]} | changes
        variables = {**self._environment, "CAPOX_RACK_STATE_DIR": str(directory / "state")}
        self.rack = RackProcess(directory, rack, "--allow-host-changes", variables=variables, patience=8)
        self.client: httpx.Client

    def __enter__(self) -> Self:
        """Start it."""
        self.rack.__enter__()
        self.client = self.rack.client()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop it; the rack takes its guests away."""
        self.client.close()
        self.rack.__exit__(*exception)

    def must(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Send a request that has to be answered by this status."""
        arguments: dict[str, Any] = {} if body is None else {"json": body}
        answer = self.client.request(method, path, timeout=30, **arguments)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def create(self, name: str, *, external: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
        """Make an instance with a boot disk, and wait until it runs."""
        (image,) = self.must(200, "GET", "/v1/images")["items"]
        source = {"type": "image", "image_id": image["id"]}
        body = {
            "name": name,
            "description": "",
            "hostname": name,
            "ncpus": 2,
            "memory": 1024**3,
            "network_interfaces": {"type": "default_ipv4"},
            "external_ips": external or [],
            "boot_disk": {
                "type": "create",
                "name": f"{name}-boot",
                "description": "",
                "size": 2 * 1024**3,
                "disk_backend": {"type": "distributed", "disk_source": source},
            },
        }
        self.must(201, "POST", "/v1/instances?project=demo", body | fields)
        self.await_state(name, "running")
        return self.instance(name)

    def instance(self, name: str) -> dict[str, Any]:
        """An instance's view."""
        found: dict[str, Any] = self.must(200, "GET", f"/v1/instances/{name}?project=demo")
        return found

    def power(self, name: str, act: str) -> None:
        """Start, stop or reboot an instance."""
        self.must(202, "POST", f"/v1/instances/{name}/{act}?project=demo")

    def delete(self, name: str) -> None:
        """Stop an instance and delete it, and then its boot disk."""
        self.power(name, "stop")
        self.await_state(name, "stopped")
        self.must(204, "DELETE", f"/v1/instances/{name}?project=demo")
        self.must(204, "DELETE", f"/v1/disks/{name}-boot?project=demo")

    def await_state(self, name: str, state: str) -> None:
        """Wait until an instance is in a state."""
        eventually(f"{name} is {state}", lambda: self.instance(name)["run_state"] == state)

    def private_address(self, name: str) -> str:
        """The address of an instance's NIC."""
        (nic,) = self.must(200, "GET", f"/v1/network-interfaces?project=demo&instance={name}")["items"]
        address: str = nic["ip_stack"]["value"]["ip"]
        return address

    def floating_ip(self, name: str, holder: str | None = None) -> str:
        """Make a floating IP, and attach it; returns its address."""
        made = self.must(201, "POST", "/v1/floating-ips?project=demo", {"name": name, "description": ""})
        if holder is not None:
            self.attach(name, holder)
        address: str = made["ip"]
        return address

    def attach(self, name: str, holder: str) -> None:
        """Attach a floating IP."""
        body = {"kind": "instance", "parent": holder}
        self.must(202, "POST", f"/v1/floating-ips/{name}/attach?project=demo", body)

    def detach(self, name: str) -> None:
        """Detach a floating IP."""
        self.must(202, "POST", f"/v1/floating-ips/{name}/detach?project=demo")

    def allow(self, *rules: dict[str, Any]) -> None:
        """Let these be the firewall rules of the default VPC."""
        full = [
            {
                "description": "",
                "status": "enabled",
                "direction": "inbound",
                "action": "allow",
                "priority": 100,
                "targets": [{"type": "vpc", "value": "default"}],
                "filters": {},
            }
            | rule
            for rule in rules
        ]
        self.must(200, "PUT", "/v1/vpc-firewall-rules?project=demo&vpc=default", {"rules": full})

    def console(self, name: str) -> str:
        """All that an instance's console has; nothing while it does not run."""
        answer = self.client.get(f"/v1/instances/{name}/serial-console?project=demo&from_start=0")
        return bytes(answer.json()["data"]).decode(errors="replace") if answer.status_code == 200 else ""

    def await_console(self, name: str, text: str) -> None:
        """Wait until an instance has written a text to its console."""
        eventually(f"the console of {name} says {text!r}", lambda: text in self.console(name))

    def docker(self, *words: str) -> str:
        """Run a command of docker that has to succeed."""
        done = subprocess.run(["docker", *words], env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def container(self, name: str) -> str:
        """The id of an instance's container."""
        found = self.docker("ps", "-aq", "--no-trunc", "--filter", f"label=capox.instance={self.instance(name)['id']}")
        assert found, f"instance {name} has no container"
        return found

    def within(self, name: str, *words: str) -> str:
        """Run a program inside an instance that has to succeed."""
        return self.docker("exec", self.container(name), *words)

    def fetch_within(self, name: str, address: str, port: int = 6443) -> str | None:
        """Who answers an instance at an address, and as whom it sees it; None when nobody does."""
        script = f"printf 'GET {_PATH} HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} {port}"
        words = ["docker", "exec", self.container(name), "sh", "-c", script]
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)
        return _answer(done)

    def ours(self) -> dict[str, list[str]]:
        """What Docker has of this rack."""
        label = f"label=capox.rack={NAME}"
        listings = {
            "containers": ("ps", "-a", "--format", "{{.Names}}"),
            "volumes": ("volume", "ls", "-q"),
            "images": ("images", "-q"),
        }
        return {kind: self.docker(*words, "--filter", label).split() for kind, words in listings.items()}


def fetch(address: str, port: int = 6443) -> str | None:
    """Who answers this computer at an address, and as whom it sees it; None when nobody does."""
    # A process of its own: the tests' own is kept on loopback.
    words = ["curl", "--silent", "--fail", "--max-time", "2", "--noproxy", "*", _url(address, port)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return _answer(done)


def another_rack() -> dict[str, Any]:
    """Of a configuration, what has to be different where a second rack runs beside the first."""
    guests = {"backend": "docker", "name": f"{NAME}b", "image": IMAGE, "uplink": f"100.66.{_NUMBER}.0/30"}
    return {"guests": guests, "ip_pools": [_pool(f"198.19.{_NUMBER}")]}


def host_setting(name: str) -> str:
    """A setting of this computer's kernel."""
    return Path(f"/proc/sys/{name.replace('.', '/')}").read_text().strip()


def host_routes() -> list[dict[str, Any]]:
    """This computer's routes."""
    listed = subprocess.run(["ip", "-j", "-4", "route"], capture_output=True, text=True, check=True).stdout
    routes: list[dict[str, Any]] = json.loads(listed)
    return routes


def _url(address: str, port: int) -> str:
    return f"http://{address}:{port}{_PATH}"


def _answer(done: subprocess.CompletedProcess[str]) -> str | None:
    """The last line that came: the answering instance's name, and the address that it saw."""
    lines = done.stdout.strip().splitlines()
    return lines[-1].replace("[::ffff:", "").replace("]", "") if done.returncode == 0 and lines else None


def _pool(prefix: str = POOL) -> dict[str, Any]:
    return {"name": "public", "ranges": [f"{prefix}.0-{prefix}.63"], "silos": [{"silo": "lab", "default": True}]}
