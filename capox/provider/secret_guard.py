"""Keeps the Secrets with a cluster's credentials as long as it needs them: by a finalizer, and a label for moves.

There is one of the cluster's own, and there may be another for its cloud controller manager.

Without it, the end of a namespace, or of a manifest, takes the credentials before what was made with them (B27, B28,
M-11). An owner reference would do the opposite: garbage collection must not take a user's Secret. The provider may
neither list nor watch Secrets, so each one is found by a reference.
"""

from __future__ import annotations

from typing import Any, Final

from capox.api.v1alpha1 import CLUSTER_FINALIZER, CREDENTIALS_FINALIZER, OxideCluster, SecretReference
from capox.kube import errors
from capox.kube.kind import SECRETS
from capox.kube.objects import Secret
from capox.provider import gate
from capox.provider.deps import Deps
from capox.provider.kinds import OXIDE_CLUSTERS

__all__ = ["ccm_credentials_reference", "credentials_reference", "guard", "release"]

MOVE_LABEL: Final = "clusterctl.cluster.x-k8s.io/move"
"""With this label `clusterctl move` takes a Secret along that nobody owns (L-42)."""

_NOT_GUARDED: Final = "CredentialsNotGuarded"


def credentials_reference(cluster: OxideCluster) -> SecretReference:
    """The Secret of a cluster, its namespace filled in."""
    reference = cluster.spec.credentials_ref
    return SecretReference(name=reference.name, namespace=reference.namespace or cluster.metadata.namespace)


def ccm_credentials_reference(cluster: OxideCluster) -> SecretReference | None:
    """The Secret of a cluster's cloud controller manager; None where it has none of its own."""
    manager = cluster.spec.cloud_controller_manager
    if manager is None or manager.credentials_ref is None:
        return None
    return SecretReference(name=manager.credentials_ref.name, namespace=cluster.metadata.namespace)


async def guard(deps: Deps, cluster: OxideCluster, secret: Secret) -> None:
    """Put finalizer and label on the Secret that a cluster uses, where they are missing.

    What forbids that is told and stops nothing: the cluster works as long as the Secret is there.

    Raises:
        KubeError: It could not be written just now.
    """
    metadata = secret.metadata
    has_finalizer, has_label = CREDENTIALS_FINALIZER in metadata.finalizers, MOVE_LABEL in metadata.labels
    if has_finalizer and has_label:
        return
    patch: dict[str, Any] = {"resourceVersion": metadata.resource_version}
    if not has_label:
        patch["labels"] = {MOVE_LABEL: ""}
    if not has_finalizer:
        if metadata.is_being_deleted:
            # Too late: something that is being deleted takes no more finalizers.
            return
        patch["finalizers"] = [*metadata.finalizers, CREDENTIALS_FINALIZER]
    try:
        await deps.kube.patch(SECRETS, metadata.namespace, metadata.name, {"metadata": patch})
    except (errors.Forbidden, errors.Invalid) as error:
        _warn(deps, cluster, metadata.namespace, metadata.name, error)
    except errors.NotFound:
        # Gone since it was read; the next pass tells.
        return


async def release(deps: Deps, cluster: OxideCluster, reference: SecretReference) -> None:
    """Take finalizer and label off a Secret that a cluster does not use any more, unless it is used all the same.

    It may be another cluster's, or this one's for something else.

    Raises:
        KubeError: It could not be read or written just now.
    """
    namespace = reference.namespace or cluster.metadata.namespace
    secret = await gate.find(deps.kube, SECRETS, namespace, reference.name)
    if secret is None or CREDENTIALS_FINALIZER not in secret.metadata.finalizers:
        return
    # Read before the list of clusters: whoever begins to use it meanwhile writes it, and then this patch conflicts.
    if await _is_used(deps, cluster, SecretReference(name=reference.name, namespace=namespace)):
        return
    left = [other for other in secret.metadata.finalizers if other != CREDENTIALS_FINALIZER]
    version = secret.metadata.resource_version
    patch = {"metadata": {"resourceVersion": version, "finalizers": left, "labels": {MOVE_LABEL: None}}}
    try:
        await deps.kube.patch(SECRETS, namespace, reference.name, patch)
    except (errors.Forbidden, errors.Invalid) as error:
        _warn(deps, cluster, namespace, reference.name, error)
    except errors.NotFound:
        return


async def _is_used(deps: Deps, cluster: OxideCluster, reference: SecretReference) -> bool:
    try:
        others = await deps.kube.list(OXIDE_CLUSTERS, None)
    except errors.Forbidden:
        # Bound to one namespace: nobody elsewhere is looked after, then.
        others = await deps.kube.list(OXIDE_CLUSTERS, cluster.metadata.namespace)
    users = [cluster, *(other for other in others if other.metadata.uid != cluster.metadata.uid)]
    return any(
        (not user.metadata.is_being_deleted or _still_needs_it(user))
        and reference in {credentials_reference(user), ccm_credentials_reference(user)}
        for user in users
    )


def _still_needs_it(cluster: OxideCluster) -> bool:
    return CLUSTER_FINALIZER in cluster.metadata.finalizers and not cluster.status.released


def _warn(deps: Deps, cluster: OxideCluster, namespace: str, name: str, error: errors.KubeError) -> None:
    deps.recorder.warning(
        cluster,
        _NOT_GUARDED,
        f"the finalizer {CREDENTIALS_FINALIZER} and the label {MOVE_LABEL} of Secret {namespace}/{name} cannot be "
        f"changed ({error}); let the provider's account patch it, or keep the Secret until its clusters are gone",
    )
