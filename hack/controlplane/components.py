"""Cluster API's own manifests: CRDs, RBAC and webhook configurations, ready for managers that run as plain processes.

They come from the very module that the managers are built from. kubectl's kustomize renders each provider's
`config/default`; the results form a local clusterctl repository; `clusterctl generate provider` reads it as it would
read a release. What describes Pods and certificates in a cluster is dropped, and webhooks point to a URL instead of a
Service. All of that depends only on versions and on this module, so it is done once and cached.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from hack.controlplane import gobuild
from hack.controlplane.binaries import BUILD_COMMAND, Binaries
from hack.controlplane.errors import BinaryError, BuildError
from hack.controlplane.paths import TOOLS, cache_directory
from hack.controlplane.programs import (
    CAPI_CORE,
    CAPI_KUBEADM_BOOTSTRAP,
    CAPI_KUBEADM_CONTROL_PLANE,
    CLUSTERCTL,
    KUBECTL,
    Program,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hack.controlplane.progress import Reporter

SOURCE_VARIABLE: Final = "CAPOX_CLUSTER_API_SOURCE"
"""Names a directory with Cluster API's sources, for machines without Go; else they come from the module cache."""

TEMPLATE_VARIABLES: Final = {"CLUSTER_TOPOLOGY": "true", "EXP_MACHINE_POOL": "true"}
"""Feature gates beyond the defaults, by the variables of Cluster API's manifests: ClusterTopology, MachinePool."""

_WEBHOOK_URL: Final = "@WEBHOOK_URL@"
_WEBHOOK_CA: Final = "@WEBHOOK_CA@"

_RESOURCES: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
"""Collection of each kind that is applied. A kind that is neither here nor below stops the rendering: a new release of
Cluster API has brought something that somebody should look at."""

_DROPPED_KINDS: Final = frozenset({"Deployment", "Service", "Certificate", "Issuer"})

_OWN_ARGUMENTS: Final = ("--leader-elect", "--diagnostics-address", "--insecure-diagnostics")
"""Arguments of the shipped Deployment that we set ourselves or leave out: one replica, on loopback."""


@dataclass(frozen=True)
class Provider:
    """One of Cluster API's providers, in clusterctl's words.

    Attributes:
        program: its manager.
        name: provider name.
        type: provider type in the inventory.
        flag: option of `clusterctl generate provider`.
        label: value of `cluster.x-k8s.io/provider`, also the directory in a repository.
        config: directory of its manifests in Cluster API's sources.
        components: name of its components file.
    """

    program: Program
    name: str
    type: str
    flag: str
    label: str
    config: str
    components: str


PROVIDERS: Final = (
    Provider(
        CAPI_CORE,
        name="cluster-api",
        type="CoreProvider",
        flag="--core",
        label="cluster-api",
        config="core/config",
        components="core-components.yaml",
    ),
    Provider(
        CAPI_KUBEADM_BOOTSTRAP,
        name="kubeadm",
        type="BootstrapProvider",
        flag="--bootstrap",
        label="bootstrap-kubeadm",
        config="bootstrap/kubeadm/config",
        components="bootstrap-components.yaml",
    ),
    Provider(
        CAPI_KUBEADM_CONTROL_PLANE,
        name="kubeadm",
        type="ControlPlaneProvider",
        flag="--control-plane",
        label="control-plane-kubeadm",
        config="controlplane/kubeadm/config",
        components="control-plane-components.yaml",
    ),
)


@dataclass(frozen=True)
class ProviderComponents:
    """What one provider needs in the management cluster.

    Attributes:
        provider: which one.
        namespace: where it lives.
        service_account: whose token its manager uses.
        arguments: the shipped arguments of its manager, without those in `_OWN_ARGUMENTS`.
        inventory: clusterctl's note that it is installed: what `clusterctl init` would write, so that `clusterctl move`
            and `describe` find it. (init itself would install cert-manager, whose images cannot run here.)
        template: JSON of its objects, with placeholders for the webhooks' URL and authority.
    """

    provider: Provider
    namespace: str
    service_account: str
    arguments: tuple[str, ...]
    inventory: dict[str, Any]
    template: str

    def objects(self, webhook_url: str, authority_base64: str) -> list[dict[str, Any]]:
        """The objects to apply.

        Args:
            webhook_url: `https://127.0.0.1:port` of the manager's webhook server.
            authority_base64: PEM of the authority that signed its certificate, in base64.
        """
        text = self.template.replace(_WEBHOOK_URL, webhook_url).replace(_WEBHOOK_CA, authority_base64)
        objects: list[dict[str, Any]] = json.loads(text)
        return objects


class Components:
    """Rendered manifests of all providers.

    Args:
        directory: cache entry made by `ensure`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.version = CAPI_CORE.version

    @property
    def repository(self) -> Path:
        """A local clusterctl repository: `<label>/<version>/<components file>` and `metadata.yaml`."""
        return self._directory / "repository"

    @property
    def inventory_crd(self) -> dict[str, Any]:
        """The CRD in which clusterctl notes what is installed."""
        definition: dict[str, Any] = json.loads((self._directory / "inventory-crd.json").read_text())
        return definition

    def providers(self) -> list[ProviderComponents]:
        """Every provider's components, core first."""
        found = []
        for provider in PROVIDERS:
            rendered = json.loads((self._directory / f"{provider.label}.json").read_text())
            found.append(
                ProviderComponents(
                    provider,
                    rendered["namespace"],
                    rendered["service_account"],
                    tuple(rendered["arguments"]),
                    rendered["inventory"],
                    json.dumps(rendered["objects"]),
                ),
            )
        return found

    def clusterctl_configuration(self, further: Iterable[Mapping[str, str]] = ()) -> str:
        """Content of a clusterctl.yaml that knows the local repository.

        Args:
            further: more entries of `providers` (`name`, `type`, `url`).
        """
        providers = [repository_entry(self.repository, provider, self.version) for provider in PROVIDERS]
        return json.dumps({"providers": [*providers, *further]}, indent=2) + "\n"


def repository_entry(repository: Path, provider: Provider, version: str) -> dict[str, str]:
    """The entry of a provider in clusterctl.yaml."""
    return {
        "name": provider.name,
        "type": provider.type,
        "url": str(repository / provider.label / version / provider.components),
    }


def collection_path(kind: str, namespace: str | None) -> str:
    """Path of the collection of a kind that Cluster API's components hold."""
    return _RESOURCES[kind].format(namespace=namespace)


def ensure(environ: Mapping[str, str], binaries: Binaries, reporter: Reporter | None) -> Components:
    """The rendered manifests, from the cache or made now.

    Args:
        environ: as for `binaries.resolve`.
        binaries: with kubectl and clusterctl.
        reporter: where progress goes; None: nothing may be made, as with `binaries.resolve`.

    Raises:
        BinaryError: they are not in the cache and `reporter` is None.
        BuildError: kubectl or clusterctl failed.
        ToolchainError: the sources are needed and Go is missing.
    """
    entry = cache_directory(environ) / "cluster-api" / f"{CAPI_CORE.version}-{_digest(environ)}"
    if not entry.is_dir():
        if reporter is None:
            raise BinaryError(f"Cluster API's manifests have not been rendered yet. Run `{BUILD_COMMAND}`.")
        entry.parent.mkdir(parents=True, exist_ok=True)
        with reporter.stage(f"Rendering the manifests of Cluster API {CAPI_CORE.version}"):
            scratch = Path(tempfile.mkdtemp(prefix=".rendering-", dir=entry.parent))
            try:
                _render(_source(environ), scratch, binaries)
                _move_into_place(scratch, entry)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return Components(entry)


def _move_into_place(scratch: Path, entry: Path) -> None:
    """Rename, unless somebody else was first, who has made the same."""
    try:
        scratch.rename(entry)
    except OSError:
        if not entry.is_dir():
            raise


def _digest(environ: Mapping[str, str]) -> str:
    """Of what determines the manifests: the pinned module or the given sources, and how this module treats them."""
    source = environ.get(SOURCE_VARIABLE, "") + gobuild.pin(CAPI_CORE)
    return hashlib.sha256(source.encode() + Path(__file__).read_bytes()).hexdigest()[:12]


def _source(environ: Mapping[str, str]) -> Path:
    given = environ.get(SOURCE_VARIABLE)
    if given:
        if not (Path(given) / "core" / "config" / "default").is_dir():
            raise BinaryError(
                f"{SOURCE_VARIABLE}={given}: that is no source tree of Cluster API (core/config/default is missing)"
            )
        return Path(given)
    go = gobuild.find_go(environ)
    return gobuild.module_directory(CAPI_CORE.module, go, environ, TOOLS / CAPI_CORE.tools)


def _render(source: Path, target: Path, binaries: Binaries) -> None:
    repository = target / "repository"
    for provider in PROVIDERS:
        release = repository / provider.label / CAPI_CORE.version
        release.mkdir(parents=True)
        components = _run([binaries.path(KUBECTL), "kustomize", source / provider.config / "default"], {})
        (release / provider.components).write_text(components)
        # Not copied with its mode: files of the module cache are read-only.
        (release / "metadata.yaml").write_text((source / "metadata.yaml").read_text())
    entries = [repository_entry(repository, provider, CAPI_CORE.version) for provider in PROVIDERS]
    configuration = target / "clusterctl.json"
    configuration.write_text(json.dumps({"providers": entries}))
    environment = {**TEMPLATE_VARIABLES, "CLUSTERCTL_DISABLE_VERSIONCHECK": "true", "HOME": str(target)}
    for provider in PROVIDERS:
        release_name = f"{provider.name}:{CAPI_CORE.version}"
        arguments = ["generate", "provider", provider.flag, release_name, "--config", str(configuration)]
        text = _run([binaries.path(CLUSTERCTL), *arguments], environment)
        documents = list(yaml.load_all(text, Loader=_loader()))
        (target / f"{provider.label}.json").write_text(json.dumps(rendered(documents, provider)))
    configuration.unlink()
    inventory = (source / "cmd" / "clusterctl" / "config" / "manifest" / "clusterctl-api.yaml").read_text()
    (target / "inventory-crd.json").write_text(json.dumps(yaml.load(inventory, Loader=_loader())))  # noqa: S506  safe loader


def _loader() -> type[yaml.SafeLoader]:
    """The loader of libyaml where PyYAML has it: 20 times faster on these 2.5 MB."""
    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader


def _run(command: list[str | Path], environment: Mapping[str, str]) -> str:
    answer = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise BuildError(f"`{Path(command[0]).name} {command[1]}` failed: {answer.stderr.strip()}")
    return answer.stdout


def rendered(documents: Iterable[dict[str, Any]], provider: Provider) -> dict[str, Any]:
    """Turn what `clusterctl generate provider` printed into what a manager outside the cluster needs.

    Args:
        documents: the parsed documents.
        provider: whose they are.

    Returns:
        namespace, service account, arguments of the manager, inventory entry, and the objects with their webhooks
        pointing to placeholders.

    Raises:
        BuildError: there is a kind that nobody has thought of, or no Deployment.
    """
    documents = list(documents)
    deployments = [document for document in documents if document["kind"] == "Deployment"]
    if len(deployments) != 1:
        raise BuildError(f"The components of {provider.label} have {len(deployments)} Deployments instead of one")
    unknown = sorted({document["kind"] for document in documents} - _DROPPED_KINDS - _RESOURCES.keys())
    if unknown:
        raise BuildError(f"The components of {provider.label} have kinds that are not known here: {', '.join(unknown)}")
    pod = deployments[0]["spec"]["template"]["spec"]
    manager = next(container for container in pod["containers"] if container["name"] == "manager")
    namespace = deployments[0]["metadata"]["namespace"]
    inventory = {
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Provider",
        "metadata": {
            "name": provider.label,
            "namespace": namespace,
            "labels": {
                "clusterctl.cluster.x-k8s.io": "",
                "clusterctl.cluster.x-k8s.io/core": "inventory",
                "cluster.x-k8s.io/provider": provider.label,
            },
        },
        "providerName": provider.name,
        "type": provider.type,
        "version": CAPI_CORE.version,
    }
    return {
        "namespace": namespace,
        "service_account": pod["serviceAccountName"],
        "arguments": [argument for argument in manager["args"] if argument.partition("=")[0] not in _OWN_ARGUMENTS],
        "objects": [with_webhook_urls(document) for document in documents if document["kind"] not in _DROPPED_KINDS],
        "inventory": inventory,
    }


def with_webhook_urls(node: Any) -> Any:
    """A copy of a manifest in which every webhook `clientConfig` names a URL instead of a Service."""
    if isinstance(node, list):
        return [with_webhook_urls(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "service" in node.get("clientConfig", {}):
        path = node["clientConfig"]["service"].get("path", "")
        replaced = {"url": _WEBHOOK_URL + path, "caBundle": _WEBHOOK_CA}
        return {key: replaced if key == "clientConfig" else with_webhook_urls(value) for key, value in node.items()}
    return {key: with_webhook_urls(value) for key, value in node.items()}
