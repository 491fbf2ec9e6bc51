"""Where the stories of the provider play: a management cluster with the provider beside it, and a rack."""

from __future__ import annotations

import base64
import contextlib
import copy
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import RequestError
from hack.controlplane.programs import KUBE_APISERVER
from tests.integration.provider_process import ProviderProcess, install
from tests.integration.waiting import eventually
from tests.rack_process import CONFIG, RackProcess

TEMPLATE = Path(__file__).resolve().parents[2] / "config" / "templates" / "cluster-template.yaml"
TOKEN = "oxide-token-admin"
"""The API token of the stories."""

SECOND_TOKEN = "oxide-token-successor"
"""The API token of another user, who may do the same; the rack's call log tells the two apart."""

BOOTSTRAP_DATA = b"#cloud-config\n"

ASK_ATTEMPTS = 20
"""How often a user asks the rack before giving up: more often than faults of a fifth of all calls hit in a row."""

_INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io/v1alpha1"
_CORE = "cluster.x-k8s.io/v1beta2"
_GROUP = "infrastructure.cluster.x-k8s.io"

_PATHS = {
    "cluster": (f"/apis/{_CORE}", "clusters"),
    "machine": (f"/apis/{_CORE}", "machines"),
    "oxidecluster": (f"/apis/{_INFRASTRUCTURE}", "oxideclusters"),
    "oxidemachine": (f"/apis/{_INFRASTRUCTURE}", "oxidemachines"),
    "oxidemachinetemplate": (f"/apis/{_INFRASTRUCTURE}", "oxidemachinetemplates"),
    "secret": ("/api/v1", "secrets"),
    "event": ("/api/v1", "events"),
}


class Stage:
    """A management cluster with the provider, and a rack.

    Args:
        plane: The management cluster.
        rack: The rack.
        provider: The provider's process.
        namespace: Where the story's objects are.
    """

    def __init__(self, plane: ManagementCluster, rack: RackProcess, provider: ProviderProcess, namespace: str) -> None:
        self.plane = plane
        self.rack = rack
        self.provider = provider
        self.namespace = namespace

    # -- what is put there --------------------------------------------------------------------------------------------

    def add_credentials(self, token: str = TOKEN) -> None:
        """Make the Secret that clusters refer to, or put another token into it."""
        self.apply(self.secret("oxide-credentials", {"oxide-host": self.rack.url, "oxide-token": token}))

    def secret(self, name: str, values: dict[str, str | bytes]) -> dict[str, Any]:
        """Give a Secret."""
        raw = {key: value.encode() if isinstance(value, str) else value for key, value in values.items()}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace},
            "data": {key: base64.b64encode(value).decode() for key, value in raw.items()},
        }

    def plain_cluster(self, name: str, *, host: str | None = None, **spec: Any) -> list[dict[str, Any]]:
        """Give a Cluster without a control plane object, and its OxideCluster.

        Args:
            name: Of both.
            host: Of the control plane's endpoint, where the user sets it.
            **spec: Further fields of the OxideCluster's spec.
        """
        metadata = {"name": name, "namespace": self.namespace}
        reference = {"apiGroup": _GROUP, "kind": "OxideCluster", "name": name}
        if host is not None:
            spec["controlPlaneEndpoint"] = {"host": host, "port": 6443}
        return [
            {
                "apiVersion": _INFRASTRUCTURE,
                "kind": "OxideCluster",
                "metadata": metadata,
                "spec": {"credentialsRef": {"name": "oxide-credentials"}, "project": "demo", **spec},
            },
            {
                "apiVersion": _CORE,
                "kind": "Cluster",
                "metadata": copy.deepcopy(metadata),
                "spec": {"infrastructureRef": reference},
            },
        ]

    def control_plane_machine(
        self, name: str, cluster: str, *, bootstrap_data: bytes = BOOTSTRAP_DATA, **spec: Any
    ) -> list[dict[str, Any]]:
        """Give a Machine of a control plane, its OxideMachine, and the Secret with its bootstrap data.

        Args:
            name: Of the Machine and the OxideMachine.
            cluster: Where it belongs.
            bootstrap_data: What becomes its user data.
            **spec: Further fields of the OxideMachine's spec.
        """
        labels = {"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/control-plane": ""}
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        made = {"imageID": self.image_id(), "nCPUs": 1, "memory": "1Gi", "diskSize": "2Gi", **spec}
        return [
            self.secret(f"{name}-bootstrap", {"value": bootstrap_data}) | {"type": "cluster.x-k8s.io/secret"},
            {
                "apiVersion": _INFRASTRUCTURE,
                "kind": "OxideMachine",
                "metadata": metadata,
                "spec": made,
            },
            {
                "apiVersion": _CORE,
                "kind": "Machine",
                "metadata": copy.deepcopy(metadata),
                "spec": {
                    "clusterName": cluster,
                    "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
                    "infrastructureRef": {"apiGroup": _GROUP, "kind": "OxideMachine", "name": name},
                },
            },
        ]

    def generate(self, name: str, *, workers: int = 0) -> str:
        """Fill in the shipped template."""
        return self.plane.clusterctl(
            "generate",
            "cluster",
            name,
            "--from",
            str(TEMPLATE),
            "--target-namespace",
            self.namespace,
            "--kubernetes-version",
            KUBE_APISERVER.version,
            "--worker-machine-count",
            str(workers),
            variables={"OXIDE_PROJECT": "demo", "OXIDE_IMAGE_ID": self.image_id()},
        )

    # -- what a user does ---------------------------------------------------------------------------------------------

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply objects with kubectl, as a user does."""
        self.plane.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))

    def delete(self, kind: str, name: str) -> None:
        """Ask for an object's deletion."""
        self.plane.kubectl("delete", kind, name, "-n", self.namespace, "--wait=false")

    def delete_cluster(self, name: str, *, within_seconds: float = 120.0) -> None:
        """Delete a Cluster and wait until it is gone."""
        self.delete("cluster", name)
        eventually(
            f"the Cluster {name} is gone", lambda: self.get("cluster", name) is None, within_seconds=within_seconds
        )

    def annotate(self, kind: str, name: str, annotation: str) -> None:
        """Set an annotation, `key=value`, or take it off, `key-`."""
        self.plane.kubectl("annotate", kind, name, annotation, "-n", self.namespace, "--overwrite")

    def pause(self, cluster: str, *, is_paused: bool) -> None:
        """Set `spec.paused` of a Cluster."""
        patch = json.dumps({"spec": {"paused": is_paused}})
        self.plane.kubectl("patch", "cluster", cluster, "-n", self.namespace, "--type=merge", "-p", patch)

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def path(self, kind: str, name: str = "") -> str:
        """The API's path of an object, or of all of a kind."""
        root, plural = _PATHS[kind]
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str) -> Any:
        """Read an object; None when there is none."""
        try:
            return self.plane.client.get(self.path(kind, name))
        except RequestError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def objects(self, kind: str) -> list[Any]:
        """Read all objects of a kind in the namespace."""
        items: list[Any] = self.plane.client.get(self.path(kind))["items"]
        return items

    def condition(self, kind: str, name: str, condition_type: str = "Ready") -> dict[str, str]:
        """A condition of an object; empty when it has none."""
        conditions = (self.get(kind, name) or {}).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == condition_type), {})

    def is_ready(self, kind: str, name: str) -> bool:
        """Whether an object's Ready is True."""
        return self.condition(kind, name).get("status") == "True"

    def await_ready(self, kind: str, name: str, *, within_seconds: float = 90.0) -> Any:
        """Wait until an object's Ready is True, and return the object."""
        eventually(f"{kind} {name} is ready", lambda: self.is_ready(kind, name), within_seconds=within_seconds)
        return self.get(kind, name)

    def await_settled(self, cluster: str, machine: str) -> Any:
        """Wait until a machine is ready and its cluster's address attached, and return the OxideMachine.

        A machine is ready before the address is on it; until then a write is still due that is nobody's mistake.
        """
        settled = self.await_ready("oxidemachine", machine)
        self.await_attached(cluster)
        return settled

    def await_attached(self, cluster: str) -> None:
        """Wait until a cluster's floating IP is on a machine."""
        eventually(
            f"the address of {cluster} is on a machine",
            lambda: self.condition("oxidecluster", cluster, "FloatingIPAttached").get("status") == "True",
        )

    def await_endpoint(self, cluster: str, host: str) -> None:
        """Wait until Cluster API has taken an address over into the Cluster, which it does after all is ready."""
        endpoint = {"host": host, "port": 6443}
        eventually(
            f"the endpoint of {cluster} is {host}",
            lambda: self.get("cluster", cluster)["spec"].get("controlPlaneEndpoint") == endpoint,
        )

    def await_reason(
        self, kind: str, name: str, reason: str, *, condition_type: str = "Ready", within_seconds: float = 60.0
    ) -> str:
        """Wait until a condition has a reason, and return its message."""

        def seen() -> str:
            found = self.condition(kind, name, condition_type)
            return found["message"] if found.get("reason") == reason else ""

        return eventually(f"{condition_type} of {kind} {name} is {reason}", seen, within_seconds=within_seconds)

    def instances(self) -> list[Any]:
        """The rack's instances in the project."""
        return self.on_rack("instances")

    def on_rack(self, plural: str) -> list[Any]:
        """What the project has of a kind: `instances`, `disks`, `floating-ips`."""
        items: list[Any] = self.ask(f"/v1/{plural}")["items"]
        return items

    def ask(self, path: str, **query: str) -> Any:
        """Ask the rack as the user does."""
        return self._get(path, {"project": "demo", "limit": "1000", **query})

    def tell(self, path: str, body: dict[str, Any]) -> Any:
        """Have the rack make something in the project, as the user does."""
        with self.rack.client() as client:
            answer = client.post(path, params={"project": "demo"}, json=body)
            assert answer.is_success, answer.text
            return answer.json()

    def image_id(self) -> str:
        """The id of the rack's image."""
        return str(self._get("/v1/images", {})["items"][0]["id"])

    def last_call(self) -> int:
        """The number of the rack's last call."""
        return max((call["number"] for call in self.rack.control.calls()), default=0)

    def writes(self, after: int = 0) -> list[str]:
        """The operations on the rack that changed something or tried to, from behind a call on."""
        calls = self.rack.control.calls(after)
        return [call["operation"] for call in calls if call["method"] != "GET" and call["operation"]]

    def _get(self, path: str, query: dict[str, str]) -> Any:
        """Ask the rack, again when a story's fault hits this very question."""
        said: object = None
        with self.rack.client() as client:
            for _ in range(ASK_ATTEMPTS):
                try:
                    answer = client.get(path, params=query)
                except httpx.TransportError as error:
                    said = error
                    continue
                if answer.is_success:
                    return answer.json()
                said = answer.text
                if answer.status_code != http.client.SERVICE_UNAVAILABLE:
                    break
        raise AssertionError(f"GET {path}: {said}")


def world(rack: RackProcess) -> str:
    """What is on the rack, for comparison."""
    return json.dumps(rack.control.inventory(), sort_keys=True)


def rack_config() -> dict[str, Any]:
    """The configuration of the stories' rack: that of all tests, with one more user."""
    config = copy.deepcopy(CONFIG)
    config["silos"][0]["users"].append({"name": "successor", "role": "admin", "tokens": [{"token": SECOND_TOKEN}]})
    return config


@contextlib.contextmanager
def open_stage(
    plane: ManagementCluster, namespace: str, directory: Path, *arguments: str, is_provider_started: bool = True
) -> Iterator[Stage]:
    """A rack and the provider for one story; the control plane is shared.

    Args:
        plane: The control plane.
        namespace: The story's own.
        directory: For logs.
        *arguments: Further ones for the provider.
        is_provider_started: Whether the provider runs from the beginning.
    """
    install(plane)
    provider = ProviderProcess(plane, directory, f"--namespace={namespace}", *arguments)
    with contextlib.ExitStack() as stack:
        rack = stack.enter_context(RackProcess(directory, rack_config()))
        stage = Stage(plane, rack, provider, namespace)
        stage.add_credentials()
        if is_provider_started:
            provider.start()
        stack.push(provider.__exit__)
        yield stage
