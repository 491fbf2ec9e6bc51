"""One pass over one cluster's cloud controller manager: what is asked for, what is there, and what is missing.

A pass ends in one finding for the condition. It has a queue and a deadline of its own, since half of what it waits for
is in a stranger's hands.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import structlog

from capox.api import capi
from capox.api.v1alpha1 import CloudControllerManager, OxideCluster, Reason
from capox.kube.client import KubeAPI
from capox.kube.conditions import Finding
from capox.kube.errors import NotFound
from capox.kube.kind import SECRETS
from capox.kube.kubeconfig import KubeconfigRefusedError, RemoteLogin, parse_kubeconfig
from capox.provider import ccm_addon_manifests as manifests
from capox.provider import ccm_addon_plan as plan
from capox.provider.ccm_addon_credentials import CredentialsProbe, Source, check_shared, read_source
from capox.provider.ccm_addon_home import Home, check_source, home_documents
from capox.provider.ccm_addon_kinds import CONFIG_MAPS
from capox.provider.ccm_addon_rollout import Upgrades, is_upgrading
from capox.provider.ccm_addon_status import finding, shown, write_condition
from capox.provider.ccm_addon_workload import Workload
from capox.provider.deps import Deps
from capox.provider.gate import find
from capox.provider.kinds import OXIDE_MACHINES

__all__ = ["AddonDeps", "AddonPass", "NotYetError", "knobs_name"]

KUBECONFIG_KEY: Final = "value"


class NotYetError(Exception):
    """There is nothing yet to reach, or nobody to ask.

    Attributes:
        is_near: Whether the cluster is coming up, so that this will not last.
    """

    def __init__(self, message: str, *, is_near: bool = True) -> None:
        super().__init__(message)
        self.is_near = is_near


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AddonDeps:
    """What the add-on is made with.

    Attributes:
        deps: What every reconciler has.
        enter: Enters a workload cluster.
        own_image: Tells the manager's own image; empty where it runs in no Pod.
        may_share: Whether a cluster's own credentials may go into it.
        probe: Asks the rack about tokens.
        upgrades: The upgrades of all clusters.
    """

    deps: Deps
    enter: Callable[[RemoteLogin], AbstractAsyncContextManager[KubeAPI]]
    own_image: Callable[[], Awaitable[str]]
    may_share: bool
    probe: CredentialsProbe
    upgrades: Upgrades


def knobs_name(cluster: OxideCluster) -> str:
    """The name of the ConfigMap in which a cluster's owner turns knobs."""
    return f"{cluster.metadata.name}-cloud-controller-manager"


class AddonPass:
    """The pass.

    Args:
        addon: What it works with.
        cluster: The OxideCluster as it was just read.
        owner: The Cluster that owns it.

    Attributes:
        cluster: The object as it was last read or written.
        is_settled: Whether everything is as it should be.
        is_reached: Whether the cluster has answered.
    """

    def __init__(self, addon: AddonDeps, cluster: OxideCluster, owner: capi.Cluster) -> None:
        self._addon = addon
        self._kube = addon.deps.kube
        self._owner = owner
        self._wanted = cluster.spec.cloud_controller_manager or CloudControllerManager()
        self._home = Home(self._kube, cluster)
        self._log = structlog.get_logger().bind(OxideCluster=f"{cluster.metadata.namespace}/{cluster.metadata.name}")
        self.cluster = cluster
        self.is_settled = False
        self.is_reached = False
        self._login: RemoteLogin | None = None
        self._kubeconfig_digest = ""

    @property
    def is_at_home(self) -> bool:
        """Whether it is to run in the management cluster."""
        return self._wanted.placement == "ManagementCluster"

    async def run(self, *, may_be_home: bool) -> Finding:
        """Bring the cluster's cloud controller manager as far as it goes now.

        Args:
            may_be_home: Whether something may run in the management cluster that should not.

        Raises:
            NotYetError: The cluster is not there yet.
            CredentialsRefusedError: The credentials do not go into it.
            InvalidConfigurationError: What is asked for does not work.
            WorkloadError: The workload cluster does not answer as it should.
            KubeError: The management cluster could not be read or written.
            OxideError: The rack could not be asked.
        """
        mode = plan.Mode(self._wanted.mode or "")
        assert self._login is not None, "the kubeconfig is read first"
        async with self._addon.enter(self._login) as kube:
            workload = Workload(kube, self._addon.deps.now())
            await workload.observe()
            self.is_reached = True
            seen = plan.Seen(is_ours=True)
            if mode is plan.Mode.ABSENT and not await self._is_there(workload):
                seen = await workload.look_around()
            match plan.decide(mode, seen):
                case plan.Wait(message):
                    raise NotYetError(message)
                case plan.HandsOff(message):
                    self.is_settled = True
                    return finding("True", Reason.NODES_INITIALIZED_BY_ANOTHER, message)
                case plan.Remove():
                    await self._remove(workload, with_home=True)
                    self.is_settled = True
                    return finding("True", Reason.UNMANAGED)
                case _:
                    pass
            if self.is_at_home:
                found = await self._keep_at_home()
                await self._remove(workload, with_home=False)
                return found
            if may_be_home and await self._home.remove():
                self._say("CloudControllerManagerRemoved", "Removed it from the management cluster")
            return await self._keep(workload)

    async def _is_there(self, workload: Workload) -> bool:
        """Whether it is installed, on whichever side."""
        return workload.is_ours or (self.is_at_home and await self._home.deployment() is not None)

    # -- what is asked for --------------------------------------------------------------------------------------------

    async def read_kubeconfig(self) -> None:
        """Find out how to enter the cluster.

        Raises:
            NotYetError: The control plane provider has not told yet.
            KubeconfigRefusedError: The kubeconfig is not used.
            KubeError: It could not be read.
        """
        namespace, name = self.cluster.metadata.namespace, f"{self._owner.metadata.name}-kubeconfig"
        try:
            secret = await self._kube.get(SECRETS, namespace, name)
        except NotFound:
            raise NotYetError(f"Secret {namespace}/{name} does not exist yet", is_near=False) from None
        try:
            text = secret.text(KUBECONFIG_KEY)
        except ValueError as error:
            raise KubeconfigRefusedError(str(error)) from error
        if text is None:
            raise NotYetError(f"Secret {namespace}/{name} has no key {KUBECONFIG_KEY} yet", is_near=False)
        try:
            self._login = parse_kubeconfig(text.get_secret_value())
        except KubeconfigRefusedError as error:
            raise KubeconfigRefusedError(f"Secret {namespace}/{name}: {error}") from None
        self._kubeconfig_digest = hashlib.sha256(text.get_secret_value().encode()).hexdigest()[:32]

    async def _installation(self, *, is_hosted: bool) -> manifests.Installation:
        own = await self._addon.own_image()
        image = manifests.image_of(own, self._wanted.image, self._wanted.version)
        if not image:
            raise manifests.InvalidConfigurationError(
                "the provider runs in no Pod and so knows no image of its own; "
                "set spec.cloudControllerManager.image, or run the provider with --ccm-image"
            )
        config_map = await find(self._kube, CONFIG_MAPS, self.cluster.metadata.namespace, knobs_name(self.cluster))
        knobs = manifests.parse_knobs(config_map.texts) if config_map is not None else manifests.Knobs()
        endpoint = self.cluster.spec.control_plane_endpoint
        is_pinned = self._wanted.image is not None or self._wanted.version is not None
        return manifests.Installation(
            cluster_id=self.cluster.spec.cluster_id or "",
            image=image,
            release=manifests.release_of(image, is_pinned=is_pinned),
            api_host=(endpoint.host or "") if endpoint is not None else "",
            api_port=(endpoint.port if endpoint is not None else None) or 6443,
            is_hosted=is_hosted,
            knobs=knobs,
        )

    async def _is_hosted(self, workload: Workload) -> bool:
        """Whether the control plane has no Nodes, now and later: a first Node may not be labelled as one yet."""
        labels = {capi.CLUSTER_NAME_LABEL: self._owner.metadata.name, capi.CONTROL_PLANE_LABEL: None}
        if await self._kube.list(OXIDE_MACHINES, self.cluster.metadata.namespace, labels):
            return False
        return not await workload.has_control_plane_nodes()

    # -- in the workload cluster --------------------------------------------------------------------------------------

    async def _keep(self, workload: Workload) -> Finding:
        source = await read_source(self._kube, self.cluster)
        check_shared(source, may_share=self._addon.may_share)
        project = self.cluster.spec.project
        installation = await self._installation(is_hosted=await self._is_hosted(workload))
        documents = manifests.render(installation)
        values = source.values(project)
        missing = list(workload.drifted(documents))
        if not workload.is_keyed(values):
            await self._addon.probe.check(source.credentials, project)
            # Before the workload, which mounts it, and which is the last.
            missing.insert(-1 if missing and missing[-1] is documents[-1] else len(missing), {"kind": "Secret"})
        workload_document = documents[-1]
        waits = await self._admit(workload_document, self._any_workload(workload, workload_document))
        if waits:
            missing = [each for each in missing if each["kind"] == "Secret"]
        secret = manifests.secret_document(installation.cluster_id, values)
        await self._apply(workload, [secret if each["kind"] == "Secret" else each for each in missing])
        if not waits:
            other = "Deployment" if workload_document["kind"] == "DaemonSet" else "DaemonSet"
            await workload.remove({other})
        return self._judge(plan.rollout_of(self._any_workload(workload, workload_document)), source, waits)

    async def _admit(self, wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> str:
        """Why an upgrade has to wait; empty when it may begin, which is told before it does, or when it is none."""
        if not plan.is_upgrade(wanted, found):
            return ""
        waits = await self._addon.upgrades.admit(self.cluster)
        if not waits:
            await self._write(finding("False", Reason.UPGRADING, "Pods of the provider's new release are made"))
        return waits

    def _any_workload(self, workload: Workload, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """The workload of the wanted kind, or that of the other one."""
        there = workload.document(wanted)
        if there is not None:
            return there
        other = "Deployment" if wanted["kind"] == "DaemonSet" else "DaemonSet"
        return workload.document({**wanted, "kind": other})

    async def _apply(self, workload: Workload, documents: Sequence[Mapping[str, Any]]) -> None:
        is_new = not workload.is_ours
        had_secret = workload.secret is not None
        changed = [each for each in documents if await workload.apply(each)]
        names = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in changed)
        if is_new and changed:
            self._say("CloudControllerManagerInstalled", "Installed the cloud controller manager in the cluster")
        elif changed and had_secret and all(each["kind"] == "Secret" for each in changed):
            self._say("CloudControllerManagerRekeyed", "Gave the cloud controller manager its new credentials")
        elif changed:
            self._say("CloudControllerManagerApplied", f"Brought into line in the cluster: {names}")

    async def _remove(self, workload: Workload, *, with_home: bool) -> None:
        removed = await workload.remove()
        if removed:
            self._say("CloudControllerManagerRemoved", f"Removed from the cluster: {', '.join(removed)}")
        if with_home and await self._home.remove():
            self._say("CloudControllerManagerRemoved", "Removed it from the management cluster")

    # -- in the management cluster ------------------------------------------------------------------------------------

    async def _keep_at_home(self) -> Finding:
        if self._wanted.image is not None:
            raise manifests.InvalidConfigurationError(
                "in the management cluster only the provider's own image runs; leave spec.cloudControllerManager.image "
                "out, or let it run in the workload cluster"
            )
        source = await read_source(self._kube, self.cluster)
        check_source(source, self.cluster.metadata.namespace)
        installation = await self._installation(is_hosted=False)
        name = self._owner.metadata.name
        documents = home_documents(self.cluster, name, source, installation, self._kubeconfig_digest)
        waits = await self._admit(documents[-1], await self._home.deployment())
        if not waits:
            await self._home.keep(documents)
        return self._judge(plan.rollout_of(await self._home.deployment()), source, waits)

    # -- what is told -------------------------------------------------------------------------------------------------

    def _judge(self, rollout: plan.Rollout, source: Source, waits: str) -> Finding:
        uid = self.cluster.metadata.uid
        upgrades = self._addon.upgrades
        reason = Reason.SHARED_CREDENTIALS if source.is_shared else Reason.RUNNING
        if waits:
            is_running = rollout in {"done", "partly"}
            return finding("True" if is_running else "False", reason if is_running else Reason.INSTALLING, waits)
        if rollout == "done":
            upgrades.finish(uid)
            self.is_settled = True
            return finding("True", reason)
        if is_upgrading(self.cluster):
            # Once failed it stays so until it is ready, also for a process that has not seen it begin.
            if not is_upgrading(self.cluster, failed_only=True) and not upgrades.is_late(self.cluster):
                return finding("False", Reason.UPGRADING, "its Pods of the provider's new release are not ready yet")
            message = "its Pods did not become ready after the upgrade; no further cluster is upgraded until they are"
            if not is_upgrading(self.cluster, failed_only=True):
                self._addon.deps.recorder.warning(self.cluster, Reason.UPGRADE_FAILED, message)
            return finding("False", Reason.UPGRADE_FAILED, message)
        if rollout == "partly":
            return finding("True", reason)
        return finding("False", Reason.INSTALLING, "its Pods are not ready yet")

    async def _write(self, found: Finding) -> None:
        self.cluster = await write_condition(self._kube, self.cluster, found, self._addon.deps.now)

    def _say(self, reason: str, message: str) -> None:
        self._log.info("Changing the cloud controller manager", reason=reason, act=message)
        self._addon.deps.recorder.normal(self.cluster, reason, shown(message))
