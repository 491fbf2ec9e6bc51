"""The objects of the bundled cloud controller manager for one cluster: pure, from what config/ccm says.

`ccm_addon_manifests.json` is config/ccm as it is installed, made by `python -m hack.ccm`. Here a cluster's own part
comes in: identity, address, image, what its owner asks for. The credentials are the one part that is never printed.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import functools
import hashlib
import importlib.resources
import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

__all__ = [
    "CLUSTER_LABEL",
    "CONFIGURATION_ANNOTATION",
    "CONTAINER",
    "MANAGED_BY",
    "MANAGED_BY_LABEL",
    "NAME",
    "NAMESPACE",
    "RELEASE_ANNOTATION",
    "Document",
    "Installation",
    "InvalidConfigurationError",
    "Knobs",
    "as_deployment",
    "image_of",
    "packaged",
    "parse_knobs",
    "release_of",
    "render",
    "secret_document",
]

Document: TypeAlias = dict[str, Any]

NAME: Final = "capox-cloud-controller-manager"
"""The name of everything that is installed, where its kind allows."""

NAMESPACE: Final = "kube-system"
"""Where it is installed."""

CONTAINER: Final = "cloud-controller-manager"
"""The container's name."""

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
"""The label that tells who installed an object."""

MANAGED_BY: Final = "capox-ccm-addon"
"""Its value on what the add-on has installed; nothing without it is ever removed."""

CLUSTER_LABEL: Final = "infrastructure.cluster.x-k8s.io/cluster-id"
"""The label with the clusterID of the OxideCluster for which it was installed."""

RELEASE_ANNOTATION: Final = "infrastructure.cluster.x-k8s.io/ccm-release"
"""What of a workload comes from the provider's release; where it changes, that is an upgrade."""

CONFIGURATION_ANNOTATION: Final = "infrastructure.cluster.x-k8s.io/ccm-configuration"
"""On the Pods: what they were configured with, so that a change makes them anew."""

DEPLOYMENT_REPLICAS: Final = 2

_DIGEST_CHARACTERS: Final = 32
_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGT]i?)?")
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_TEXT_KNOBS: Final = {"http-proxy": "HTTP_PROXY", "https-proxy": "HTTPS_PROXY", "no-proxy": "NO_PROXY"}
_RESOURCE_KNOBS: Final = {
    "cpu-request": ("requests", "cpu"),
    "memory-request": ("requests", "memory"),
    "cpu-limit": ("limits", "cpu"),
    "memory-limit": ("limits", "memory"),
}
_LIST_KNOBS: Final = ("extra-args", "image-pull-secrets", "host-aliases")
_TEXT_CHARACTERS_MAX: Final = 4096


class InvalidConfigurationError(ValueError):
    """What is asked for does not work; the message names it and what is expected."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What a cluster's owner may turn.

    Attributes:
        extra_args: Further arguments of the process.
        environment: Proxies, as environment variables.
        resources: Requests and limits that replace ours, as (`requests` or `limits`, resource, quantity).
        image_pull_secrets: Names of Secrets in the namespace of the Pods.
        host_aliases: Addresses with their names, for a rack that no DNS knows.
    """

    extra_args: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    resources: tuple[tuple[str, str, str], ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One cluster's own part.

    Attributes:
        cluster_id: `spec.clusterID`.
        image: What the Pods run.
        release: What comes from the provider's release; see `release_of`.
        api_host: The control plane endpoint's host, so that a cluster without kube-proxy reaches its API; empty for
            the API's own Service.
        api_port: Its port.
        is_hosted: Whether the control plane has no Nodes: then a Deployment runs on the others.
        knobs: What the cluster's owner has turned.
    """

    cluster_id: str
    image: str
    release: str
    api_host: str = ""
    api_port: int = 6443
    is_hosted: bool = False
    knobs: Knobs = dataclasses.field(default_factory=Knobs)


@functools.cache
def _text() -> str:
    return importlib.resources.files(__package__).joinpath("ccm_addon_manifests.json").read_text("utf-8")


def packaged() -> list[Document]:
    """config/ccm as this release has it, the template of the Secret included."""
    documents: list[Document] = json.loads(_text())
    return documents


def release_of(image: str, *, is_pinned: bool) -> str:
    """A text that changes when this provider's release changes a workload: its manifests, and the image unless pinned.

    Args:
        image: What the Pods run.
        is_pinned: Whether the cluster's owner has chosen the image or its version.
    """
    return _digest(_text(), "" if is_pinned else image)


def image_of(own: str, image: str | None, version: str | None) -> str:
    """The image to run.

    Args:
        own: The manager's own.
        image: `spec.cloudControllerManager.image`.
        version: `spec.cloudControllerManager.version`: the tag, in place of any other.
    """
    chosen = image or own
    if version is None:
        return chosen
    name = chosen.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}:{version}"


def render(installation: Installation) -> list[Document]:
    """All objects but the Secret, in the order in which they are applied.

    The workload comes last, so that what it needs is there when its first Pod begins.
    """
    environment = _environment(installation)
    documents = []
    for document in packaged():
        match document["kind"]:
            case "Secret":
                continue
            case "ConfigMap":
                documents.append(document | {"data": environment})
            case "DaemonSet":
                documents.append(_workload(document, installation, environment))
            case _:
                documents.append(document)
    for document in documents:
        _label(document, installation.cluster_id)
    return documents


def secret_document(cluster_id: str, values: Mapping[str, str]) -> Document:
    """The Secret with the credentials."""
    (document,) = (each for each in packaged() if each["kind"] == "Secret")
    del document["stringData"]
    document["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in sorted(values.items())}
    _label(document, cluster_id)
    return document


def as_deployment(daemon_set: Document) -> Document:
    """The same Pods without control plane Nodes: two, on different Nodes, of which one works."""
    document = copy.deepcopy(daemon_set)
    document["kind"] = "Deployment"
    spec = document["spec"]
    rolling = spec.pop("updateStrategy")
    selector = copy.deepcopy(spec["selector"])
    document["spec"] = {"replicas": DEPLOYMENT_REPLICAS, "strategy": rolling, **spec}
    document["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    return document


def parse_knobs(data: Mapping[str, str]) -> Knobs:
    """Read the knobs of a ConfigMap's data.

    Raises:
        InvalidConfigurationError: A key is not known, or its value is none.
    """
    known = {*_TEXT_KNOBS, *_RESOURCE_KNOBS, *_LIST_KNOBS}
    for key, value in data.items():
        if key not in known:
            raise InvalidConfigurationError(f"key {key} is none of {', '.join(sorted(known))}")
        if len(value) > _TEXT_CHARACTERS_MAX:
            raise InvalidConfigurationError(
                f"key {key} has {len(value)} characters; at most {_TEXT_CHARACTERS_MAX} are taken"
            )
    return Knobs(
        extra_args=tuple(_argument(line) for line in _lines(data, "extra-args")),
        environment={variable: data[key].strip() for key, variable in _TEXT_KNOBS.items() if data.get(key, "").strip()},
        resources=tuple(
            (part, resource, _quantity(key, data[key].strip()))
            for key, (part, resource) in _RESOURCE_KNOBS.items()
            if key in data
        ),
        image_pull_secrets=tuple(_secret_name(line) for line in _lines(data, "image-pull-secrets")),
        host_aliases=tuple(_host_alias(line) for line in _lines(data, "host-aliases")),
    )


def _lines(data: Mapping[str, str], key: str) -> list[str]:
    lines = [line.partition(" #")[0].strip() for line in data.get(key, "").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _argument(line: str) -> str:
    if not line.startswith("--"):
        raise InvalidConfigurationError(
            f"key extra-args: {line!r} is not an argument such as --node-monitor-period=10s"
        )
    return line


def _quantity(key: str, value: str) -> str:
    if not _QUANTITY.fullmatch(value):
        raise InvalidConfigurationError(f"key {key}: {value!r} is not an amount such as 100m or 256Mi")
    return value


def _secret_name(line: str) -> str:
    if not _NAME.fullmatch(line):
        raise InvalidConfigurationError(f"key image-pull-secrets: {line!r} is not the name of a Secret")
    return line


def _host_alias(line: str) -> tuple[str, tuple[str, ...]]:
    address, *names = line.split()
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        ip = None
    if ip is None or not names or not all(_NAME.fullmatch(name) for name in names):
        raise InvalidConfigurationError(
            f"key host-aliases: {line!r} is not an address and its names, such as 192.0.2.10 silo.sys.rack.example.com"
        )
    return str(ip), tuple(names)


def _environment(installation: Installation) -> dict[str, str]:
    environment = {"CAPOX_CLUSTER_ID": installation.cluster_id, **installation.knobs.environment}
    if installation.api_host:
        environment["KUBERNETES_SERVICE_HOST"] = installation.api_host
        environment["KUBERNETES_SERVICE_PORT"] = str(installation.api_port)
    return environment


def _workload(document: Document, installation: Installation, environment: Mapping[str, str]) -> Document:
    if installation.is_hosted:
        document = as_deployment(document)
    document["metadata"]["annotations"] = {RELEASE_ANNOTATION: installation.release}
    template = document["spec"]["template"]
    template["metadata"]["annotations"][CONFIGURATION_ANNOTATION] = _digest(json.dumps(environment, sort_keys=True))
    configure_pod(template["spec"], installation.image, installation.knobs)
    return document


def configure_pod(pod: Document, image: str, knobs: Knobs) -> None:
    """Put image and knobs into a Pod's spec."""
    (container,) = pod["containers"]
    container["image"] = image
    container["args"] += knobs.extra_args
    for part, resource, quantity in knobs.resources:
        container["resources"].setdefault(part, {})[resource] = quantity
    if knobs.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in knobs.image_pull_secrets]
    if knobs.host_aliases:
        pod["hostAliases"] = [{"ip": address, "hostnames": list(names)} for address, names in knobs.host_aliases]


def _label(document: Document, cluster_id: str) -> None:
    document["metadata"]["labels"] |= {MANAGED_BY_LABEL: MANAGED_BY, CLUSTER_LABEL: cluster_id}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST_CHARACTERS]
