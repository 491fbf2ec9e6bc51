"""A management cluster: a control plane on which Cluster API's own controllers run.

Each manager is a plain process under its own ServiceAccount token and the RBAC that it ships with, so what it may do
here is what it may do in a real cluster. Its webhooks, conversion included, are served at `https://127.0.0.1:port` with
our certificate authority. (The managers have no flag for the address of their webhook server: it listens on all
interfaces. Health and diagnostics are on loopback.)
"""

from __future__ import annotations

import base64
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from hack.controlplane import components as capi_components
from hack.controlplane.pki import LOOPBACK
from hack.controlplane.plane import ControlPlane, answers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hack.controlplane.binaries import Binaries
    from hack.controlplane.components import Components, ProviderComponents

_MANAGER_SECONDS: Final = 180.0
_ESTABLISHED_SECONDS: Final = 60.0
_AGGREGATION_SECONDS: Final = 60.0
"""Bounds on start-up; idle, each is a second or two."""

_APPLY_THREADS: Final = 8
_AGGREGATED_ROLE: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/capi-aggregated-manager-role"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ManagementCluster(ControlPlane):
    """A control plane with Cluster API: core, kubeadm bootstrap and kubeadm control plane.

    Args:
        binaries: the programs, all of them.
        components: Cluster API's manifests (`components.ensure`).
        directory: as for `ControlPlane`.
        environ: as for `ControlPlane`.
        apiserver_arguments: as for `ControlPlane`.
    """

    def __init__(
        self,
        binaries: Binaries,
        components: Components,
        *,
        directory: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        apiserver_arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(binaries, directory=directory, environ=environ, apiserver_arguments=apiserver_arguments)
        self._components = components
        self._health_ports: dict[str, int] = {}

    def start_in_steps(self) -> Iterator[str]:
        """As `ControlPlane.start_in_steps`, then `Cluster API`.

        Cluster API is brought up while kube-controller-manager finds its feet: the two wait for different things.
        """
        for step in super().start_in_steps():
            if step == "kube-apiserver":
                self._bring_up_cluster_api()
            yield step
        for name, port in self._health_ports.items():
            is_ready = functools.partial(answers, port, "/readyz")
            self.processes.wait_until(name, is_ready, within_seconds=_MANAGER_SECONDS)
        self.note_phase("Cluster API managers")
        yield "Cluster API"

    def clusterctl(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout_seconds: float = 60.0,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run clusterctl as the administrator, with the local repository (`write_clusterctl_configuration`)."""
        configuration = ("--config", str(self.clusterctl_configuration))
        return super().clusterctl(
            *arguments, *configuration, stdin=stdin, timeout_seconds=timeout_seconds, variables=variables
        )

    @property
    def clusterctl_configuration(self) -> Path:
        """clusterctl.yaml that names the local repository of Cluster API, and what was added to it."""
        return self.directory / "clusterctl.yaml"

    def write_clusterctl_configuration(self, further: Iterable[Mapping[str, str]] = ()) -> None:
        """Write clusterctl.yaml anew.

        Args:
            further: more entries of its `providers` list: `name`, `type` and `url` of a components file in a directory
                named after its version.
        """
        self.clusterctl_configuration.write_text(self._components.clusterctl_configuration(further))

    def add_provider(self, components: ProviderComponents) -> int:
        """Install one more of Cluster API's providers beside the others, and wait until its manager is ready.

        Args:
            components: What it needs. Its program must be among the binaries.

        Returns:
            The pid of its manager.
        """
        endpoints = self.processes.lease_ports(3)
        authority = base64.b64encode(self.pki.webhook_authority.key_pair.certificate).decode()
        objects = components.objects(f"https://{LOOPBACK}:{endpoints[0]}", authority)
        with ThreadPoolExecutor(_APPLY_THREADS, thread_name_prefix="apply") as executor:
            self._apply(objects, executor)
        self._wait_for_crds(objects)
        pid = self._start_manager(components, *endpoints)
        name = components.provider.program.name
        is_ready = functools.partial(answers, endpoints[1], "/readyz")
        self.processes.wait_until(name, is_ready, within_seconds=_MANAGER_SECONDS)
        return pid

    def _bring_up_cluster_api(self) -> None:
        self.write_clusterctl_configuration()
        providers = self._components.providers()
        ports = self.processes.lease_ports(3 * len(providers))
        endpoints = {
            provider.provider.label: ports[3 * index : 3 * index + 3] for index, provider in enumerate(providers)
        }
        authority = base64.b64encode(self.pki.webhook_authority.key_pair.certificate).decode()
        objects = [self._components.inventory_crd]
        objects += [
            entry
            for provider in providers
            for entry in provider.objects(f"https://{LOOPBACK}:{endpoints[provider.provider.label][0]}", authority)
        ]
        with ThreadPoolExecutor(_APPLY_THREADS, thread_name_prefix="apply") as executor:
            self._apply(objects, executor)
        self._wait_for_crds(objects)
        for provider in providers:
            self.client.apply(
                f"/apis/clusterctl.cluster.x-k8s.io/v1alpha3/namespaces/{provider.namespace}/providers/{provider.provider.label}",
                provider.inventory,
            )
        self.note_phase("Cluster API objects")
        # Core's role is put together by kube-controller-manager. A manager that starts before that is refused, and
        # tries again at growing intervals; it is started last.
        for provider in reversed(providers):
            if provider.provider.label == "cluster-api":
                self._wait_for_role()
            self._start_manager(provider, *endpoints[provider.provider.label])

    def _apply(self, objects: list[dict[str, Any]], executor: ThreadPoolExecutor) -> None:
        """Apply many objects, namespaces first and the rest side by side."""

        def apply(entry: Mapping[str, Any]) -> None:
            metadata = entry["metadata"]
            collection = capi_components.collection_path(entry["kind"], metadata.get("namespace"))
            self.client.apply(f"{collection}/{metadata['name']}", entry)

        namespaces = [entry for entry in objects if entry["kind"] == "Namespace"]
        rest = [entry for entry in objects if entry["kind"] != "Namespace"]
        # CRDs take the apiserver longest; begun first, they end with the others.
        rest.sort(key=lambda entry: entry["kind"] != "CustomResourceDefinition")
        for batch in (namespaces, rest):
            for _ in executor.map(apply, batch):
                pass

    def _wait_for_crds(self, objects: list[dict[str, Any]]) -> None:
        pending = [entry["metadata"]["name"] for entry in objects if entry["kind"] == "CustomResourceDefinition"]

        def are_established() -> bool:
            while pending and is_established(self.client.get(f"{_CRDS}/{pending[-1]}")):
                pending.pop()
            return not pending

        self.processes.wait_until(
            "kube-apiserver", are_established, within_seconds=_ESTABLISHED_SECONDS, what="serving the CRDs"
        )

    def _wait_for_role(self) -> None:
        self.processes.wait_until(
            "kube-controller-manager",
            lambda: bool(self.client.get(_AGGREGATED_ROLE).get("rules")),
            within_seconds=_AGGREGATION_SECONDS,
            what="done with aggregating Cluster API's role",
        )

    def _start_manager(
        self, components: ProviderComponents, webhook_port: int, health_port: int, diagnostics_port: int
    ) -> int:
        program = components.provider.program
        path = self.service_account_kubeconfig(components.namespace, components.service_account)
        pid = self.processes.start(
            program.name,
            [
                self.binaries.path(program),
                *components.arguments,
                f"--webhook-port={webhook_port}",
                f"--webhook-cert-dir={self.pki.directory / 'webhook'}",
                f"--health-addr={LOOPBACK}:{health_port}",
                f"--diagnostics-address={LOOPBACK}:{diagnostics_port}",
                "--insecure-diagnostics=true",
            ],
            {
                "KUBECONFIG": str(path),
                "HOME": str(self.directory / "home"),
                "POD_NAMESPACE": components.namespace,
                "POD_NAME": f"{program.name}-0",
                "POD_UID": f"00000000-0000-0000-0000-{webhook_port:012d}",
                "POD_IP": LOOPBACK,
            },
        )
        self._health_ports[program.name] = health_port
        return pid


def is_established(definition: Mapping[str, Any]) -> bool:
    """Whether a CustomResourceDefinition is served."""
    conditions = definition.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
