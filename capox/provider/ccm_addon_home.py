"""A cluster's cloud controller manager in the management cluster: neither its token nor its process goes abroad.

It runs as a Deployment beside the OxideCluster and mounts two Secrets that are there already: the kubeconfig and the
credentials. Its ServiceAccount may do nothing and has no token. What the cluster's owner may choose is less than
abroad, since this Pod runs next to other people's: no image but the provider's own, and no further arguments.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster, Reason
from capox.kube.client import KubeAPI
from capox.kube.errors import Forbidden, NotFound
from capox.kube.kind import Kind
from capox.provider import ccm_addon_plan as plan
from capox.provider.ccm_addon_credentials import CredentialsRefusedError, Source
from capox.provider.ccm_addon_kinds import DEPLOYMENTS, SERVICE_ACCOUNTS
from capox.provider.ccm_addon_manifests import (
    CLUSTER_LABEL,
    CONFIGURATION_ANNOTATION,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    RELEASE_ANNOTATION,
    Document,
    Installation,
    InvalidConfigurationError,
    as_deployment,
    configure_pod,
    packaged,
)

__all__ = ["Home", "check_source", "home_documents"]

PROJECT_ANNOTATION: Final = "infrastructure.cluster.x-k8s.io/project"
KUBECONFIG_ARGUMENTS: Final = ("--kubeconfig=/etc/kubeconfig/value", "--untrusted-kubeconfig")


class Home:
    """What runs beside one OxideCluster.

    Args:
        kube: The management cluster.
        cluster: The OxideCluster.
    """

    def __init__(self, kube: KubeAPI, cluster: OxideCluster) -> None:
        self._kube = kube
        self._cluster = cluster
        self._name = f"{cluster.metadata.name}-cloud-controller-manager"

    async def deployment(self) -> Document | None:
        """Read the Deployment; a provider that may not is taken to have made none.

        Raises:
            KubeError: It could not be read.
        """
        with contextlib.suppress(Forbidden):
            found = await self._find(DEPLOYMENTS, self._name)
            if found is not None and plan.is_ours(found.metadata.labels):
                document: Document = found.document()
                return document
        return None

    async def keep(self, documents: list[Document]) -> None:
        """Apply what is not as it should be.

        Raises:
            InvalidConfigurationError: The provider may not make Deployments, or somebody else has made them.
            KubeError: The management cluster could not be read or written.
        """
        namespace = self._cluster.metadata.namespace
        try:
            for document in documents:
                kind: Kind[Any] = DEPLOYMENTS if document["kind"] == "Deployment" else SERVICE_ACCOUNTS
                found = await self._find(kind, self._name)
                if found is not None and not plan.is_ours(found.metadata.labels):
                    raise InvalidConfigurationError(f"{kind.name} {namespace}/{self._name} is somebody else's")
                if plan.drifted([document], [found.document() if found is not None else None]):
                    await self._kube.apply(kind, namespace, self._name, document)
        except Forbidden as error:
            raise InvalidConfigurationError(
                f"the provider may not keep Deployments and ServiceAccounts in namespace {namespace}; apply "
                f"config/ccm-at-home to the management cluster ({error.message})"
            ) from error

    async def remove(self) -> bool:
        """Delete what runs there; a provider that may not is taken to have made nothing.

        Returns:
            Whether there was something.

        Raises:
            KubeError: It is still there.
        """
        is_removed = False
        with contextlib.suppress(Forbidden):
            for kind in (DEPLOYMENTS, SERVICE_ACCOUNTS):
                found = await self._find(kind, self._name)
                if found is not None and plan.is_ours(found.metadata.labels):
                    with contextlib.suppress(NotFound):
                        namespace = self._cluster.metadata.namespace
                        await self._kube.delete(kind, namespace, self._name, uid=found.metadata.uid)
                    is_removed = True
        return is_removed

    async def _find(self, kind: Any, name: str) -> Any:
        try:
            return await self._kube.get(kind, self._cluster.metadata.namespace, name)
        except NotFound:
            return None


def check_source(source: Source, namespace: str) -> None:
    """Check that the Secret can be mounted where the Deployment is.

    Raises:
        CredentialsRefusedError: It is in another namespace.
    """
    where = source.secret.metadata.namespace
    if where != namespace:
        raise CredentialsRefusedError(
            Reason.CREDENTIALS_NOT_ALLOWED,
            f"Secret {where}/{source.secret.metadata.name} cannot be mounted in namespace {namespace}; name a Secret "
            "of that namespace in spec.cloudControllerManager.credentialsRef",
        )


def home_documents(
    cluster: OxideCluster, cluster_name: str, source: Source, installation: Installation, kubeconfig_digest: str
) -> list[Document]:
    """The ServiceAccount and the Deployment. Pure.

    A kubeconfig is read when a process starts, so its digest is on the Pod, and a new one makes a new Pod.

    Raises:
        InvalidConfigurationError: The knobs ask for what is not done here.
    """
    knobs = installation.knobs
    if knobs.extra_args or knobs.host_aliases or knobs.image_pull_secrets:
        raise InvalidConfigurationError(
            "in the management cluster neither extra-args, host-aliases nor image-pull-secrets work"
        )
    deployment = as_deployment(next(each for each in packaged() if each["kind"] == "DaemonSet"))
    labels = {
        CLUSTER_LABEL: installation.cluster_id,
        MANAGED_BY_LABEL: MANAGED_BY,
        capi.CLUSTER_NAME_LABEL: cluster_name,
    }
    name = f"{cluster.metadata.name}-cloud-controller-manager"
    metadata = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": deployment["metadata"]["labels"] | labels,
        "ownerReferences": [
            {
                "apiVersion": cluster.api_version,
                "kind": cluster.kind,
                "name": cluster.metadata.name,
                "uid": cluster.metadata.uid,
                "controller": True,
            }
        ],
    }
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }
    template, spec = deployment["spec"]["template"], deployment["spec"]
    selector = template["metadata"]["labels"] | {CLUSTER_LABEL: installation.cluster_id}
    spec["replicas"] = 1
    spec["selector"] = {"matchLabels": selector}
    template["metadata"]["labels"] = selector
    annotations = {PROJECT_ANNOTATION: cluster.spec.project, CONFIGURATION_ANNOTATION: kubeconfig_digest}
    template["metadata"]["annotations"] |= annotations
    _move_in(template["spec"], name, f"{cluster_name}-kubeconfig", source, installation)
    deployment["metadata"] = metadata | {"annotations": {RELEASE_ANNOTATION: installation.release}}
    return [account, deployment]


def _move_in(pod: Document, account: str, kubeconfig: str, source: Source, installation: Installation) -> None:
    """Make of a Pod of a Node's own network an ordinary one, beside other people's."""
    for field in ("hostNetwork", "dnsPolicy", "priorityClassName", "tolerations", "affinity"):
        del pod[field]
    pod["serviceAccountName"] = account
    pod["automountServiceAccountToken"] = False
    configure_pod(pod, installation.image, installation.knobs)
    (container,) = pod["containers"]
    container["args"] += KUBECONFIG_ARGUMENTS
    del container["envFrom"]
    environment = {"CAPOX_CLUSTER_ID": installation.cluster_id, **installation.knobs.environment}
    container["env"] = [*({"name": key, "value": value} for key, value in environment.items()), *container["env"]]
    container["volumeMounts"].append({"name": "kubeconfig", "mountPath": "/etc/kubeconfig", "readOnly": True})
    secret = source.secret.metadata.name
    project = {"path": "oxide-project", "fieldRef": {"fieldPath": f"metadata.annotations['{PROJECT_ANNOTATION}']"}}
    sources = [
        {"secret": {"name": secret, "items": [{"key": key, "path": key} for key in ("oxide-host", "oxide-token")]}},
        {"secret": {"name": secret, "optional": True, "items": [{"key": "oxide-ca", "path": "oxide-ca"}]}},
        {"downwardAPI": {"items": [project]}},
    ]
    pod["volumes"] = [
        {"name": "credentials", "projected": {"defaultMode": 288, "sources": sources}},
        {
            "name": "kubeconfig",
            "secret": {"secretName": kubeconfig, "defaultMode": 288, "items": [{"key": "value", "path": "value"}]},
        },
    ]
