"""A management cluster and any number of workload clusters on virtual time, for the add-on and its bad neighbours."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx

from capox.kube import errors
from capox.kube.client import KubeAPI
from capox.kube.kind import SECRETS
from capox.kube.kubeconfig import RemoteLogin
from capox.kube.lease import LEASES
from capox.kube.workqueue import Request, Result
from capox.oxide.client import OxideClient
from capox.oxide.clock import Clock, LoopClock
from capox.oxide.token_bucket import TokenBuckets
from capox.provider.ccm_addon import CcmAddonReconciler
from capox.provider.ccm_addon_credentials import CredentialsProbe
from capox.provider.ccm_addon_image import OwnImage
from capox.provider.ccm_addon_kinds import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    INSTALLED,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
)
from capox.provider.ccm_addon_manifests import NAMESPACE
from capox.provider.ccm_addon_pass import AddonDeps
from capox.provider.ccm_addon_rollout import Upgrades
from capox.provider.credentials import Credentials
from capox.provider.deps import Deps
from capox.provider.kinds import CLUSTERS, OXIDE_CLUSTERS, OXIDE_MACHINES
from capox.provider.racks import Racks
from capox.rack.clock import PassingClock
from hack.controlplane.pki import kubeconfig
from tests.rack import RackUnderTest
from tests.sim.loop import EPOCH, simulation_loop
from tests.sim.store import Document, Store
from tests.sim.store_client import StoreClient, Weather
from tests.sim.world import Recorded

TEAM = "team"
TOKEN = "oxide-token-limited_collaborator"
ADMIN_TOKEN = "oxide-token-admin"
IMAGE = "registry.example.com/capox:v1"
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
DEAD_SECONDS = 10.0


class WorkloadCluster:
    """One workload cluster.

    Attributes:
        store: Its objects.
        is_dead: Whether nobody answers, for as long as a client waits.
        weather: What is between it and the add-on.
        clients: The clients that have entered it.
    """

    def __init__(self, seed: str) -> None:
        loop = simulation_loop()
        kinds = (*INSTALLED.values(), SECRETS, NODES, LEASES)
        namespaces = ("default", "kube-system", "kube-node-lease")
        self.store = Store(kinds, now=loop.now, randomness=random.Random(seed), namespaces=namespaces)
        self.is_dead = False
        self.weather: Weather = _Silence(self)
        self.clients: list[StoreClient] = []

    def add_node(self, name: str, *, is_new: bool = True, is_control_plane: bool = True) -> None:
        """Have a kubelet register."""
        labels = {"node-role.kubernetes.io/control-plane": ""} if is_control_plane else {}
        spec = {"taints": [TAINT]} if is_new else {}
        metadata = {"name": name, "labels": labels}
        self.store.create(NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})

    def run_pods(self, *, ready: int = 1, desired: int = 1) -> None:
        """Do what kubelets do with our DaemonSet or Deployment."""
        for kind in (DAEMON_SETS, DEPLOYMENTS):
            for each in self.store.list(kind, NAMESPACE):
                status = {"observedGeneration": each["metadata"]["generation"]}
                if kind is DAEMON_SETS:
                    status |= {"desiredNumberScheduled": desired, "updatedNumberScheduled": desired}
                    status |= {"numberReady": ready}
                else:
                    status |= {"updatedReplicas": 2, "readyReplicas": 2 * ready}
                name = each["metadata"]["name"]
                self.store.patch(kind, NAMESPACE, name, {"status": status}, subresource="status")

    def documents(self) -> dict[str, Document]:
        """Everything but Nodes and Leases, by kind and name."""
        found: dict[str, Document] = {}
        for kind in (*INSTALLED.values(), SECRETS):
            found |= {f"{kind.name}/{each['metadata']['name']}": each for each in self.store.list(kind, None)}
        return found

    def credentials(self) -> dict[str, str]:
        """What our Secret holds; empty when it is not there."""
        secrets = self.store.list(SECRETS, NAMESPACE)
        data = secrets[0]["data"] if secrets else {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def workload(self) -> Document:
        """Our DaemonSet, or Deployment."""
        (found,) = [*self.store.list(DAEMON_SETS, None), *self.store.list(DEPLOYMENTS, None)]
        return found

    def writes(self) -> int:
        """How many writes have come from outside."""
        return sum(call.is_write for client in self.clients for call in client.calls)

    def calls(self) -> int:
        """How many calls have come from outside."""
        return sum(len(client.calls) for client in self.clients)


class AddonWorld:
    """The management cluster with the add-on.

    Attributes:
        store: Its objects.
        workloads: The workload clusters by the name of their Cluster.
        recorded: Events.
    """

    def __init__(self) -> None:
        loop = simulation_loop()
        kinds = (CLUSTERS, OXIDE_CLUSTERS, OXIDE_MACHINES, SECRETS, CONFIG_MAPS, DEPLOYMENTS, SERVICE_ACCOUNTS, PODS)
        self.store = Store(kinds, now=loop.now, randomness=random.Random("addon"), namespaces=(TEAM, "other"))
        self.rack = RackUnderTest(None, PassingClock(loop.time, EPOCH))
        self.workloads: dict[str, WorkloadCluster] = {}
        self.recorded = Recorded()
        self.may_share = True
        self.restart()
        self.add_secret("oxide-credentials", TOKEN)

    def restart(self, image: str = IMAGE) -> None:
        """Start the add-on anew, maybe as another release of the provider."""
        self.kube = StoreClient(self.store)
        self.racks = Racks(TokenBuckets(rate_per_second=50, burst=20), LoopClock(), self._connect)
        deps = Deps(
            kube=self.kube,
            racks=self.racks,
            clock=LoopClock(),
            now=simulation_loop().now,
            randomness=random.Random("process"),
            recorder=self.recorded,
            probe=_never,
        )
        addon = AddonDeps(
            deps=deps,
            enter=self._enter,
            own_image=OwnImage(self.kube, None, image),
            may_share=self.may_share,
            probe=CredentialsProbe(self.racks, LoopClock()),
            upgrades=Upgrades(self.kube, None, LoopClock()),
        )
        self.reconciler = CcmAddonReconciler(addon)

    async def end(self) -> None:
        """End everything."""
        await self.racks.aclose()
        await self.rack.app.finish()
        await self.rack.http.aclose()

    # -- what is put there --------------------------------------------------------------------------------------------

    def add_secret(self, name: str, token: str, namespace: str = TEAM, **annotations: str) -> None:
        """Make a Secret with credentials, or put another token into it."""
        data = {"oxide-host": "http://rack", "oxide-token": token}
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "annotations": annotations}
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
        self.store.apply(SECRETS, namespace, name, document)

    def add_cluster(
        self,
        name: str,
        ccm: dict[str, Any] | None = None,
        *,
        nodes: int = 1,
        is_new: bool = True,
        has_kubeconfig: bool = True,
        is_initialized: bool = True,
        **spec: Any,
    ) -> WorkloadCluster:
        """Have a cluster whose infrastructure is there and whose API answers."""
        workload = self.workloads[name] = WorkloadCluster(name)
        for number in range(nodes):
            workload.add_node(f"{name}-{number}", is_new=is_new)
        reference = {"apiGroup": OXIDE_CLUSTERS.group, "kind": "OxideCluster", "name": name}
        owner = self._create(CLUSTERS, name, {"infrastructureRef": reference})
        initialization = {"infrastructureProvisioned": True, "controlPlaneInitialized": is_initialized or None}
        self.store.patch(CLUSTERS, TEAM, name, {"status": {"initialization": initialization}}, subresource="status")
        ours = {
            "credentialsRef": {"name": "oxide-credentials"},
            "project": "demo",
            "clusterID": f"id-of-{name}",
            "controlPlaneEndpoint": {"host": "192.0.2.10", "port": 6443},
            **({"cloudControllerManager": ccm} if ccm is not None else {}),
            **spec,
        }
        owners = [
            {"apiVersion": CLUSTERS.api_version, "kind": "Cluster", "name": name, "uid": owner["metadata"]["uid"]}
        ]
        self._create(OXIDE_CLUSTERS, name, ours, ownerReferences=owners)
        status = {"status": {"initialization": {"provisioned": True}}}
        self.store.patch(OXIDE_CLUSTERS, TEAM, name, status, subresource="status")
        machine = {"cluster.x-k8s.io/cluster-name": name, "cluster.x-k8s.io/control-plane": ""}
        self._create(OXIDE_MACHINES, f"{name}-0", {"nCPUs": 1, "memory": "1Gi", "diskSize": "2Gi"}, labels=machine)
        if has_kubeconfig:
            self.add_kubeconfig(name)
        return workload

    def add_kubeconfig(self, name: str, text: bytes | None = None) -> None:
        """Do what the control plane provider does."""
        value = text or kubeconfig(f"https://{name}.example:6443", b"authority", token="token-of-an-admin")
        metadata = {"name": f"{name}-kubeconfig", "namespace": TEAM}
        data = {"value": base64.b64encode(value).decode()}
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self.store.apply(SECRETS, TEAM, f"{name}-kubeconfig", document)

    def add_knobs(self, name: str, **data: str) -> None:
        """Turn knobs."""
        metadata = {"name": f"{name}-cloud-controller-manager", "namespace": TEAM}
        texts = {key.replace("_", "-"): value for key, value in data.items()}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}
        self.store.apply(CONFIG_MAPS, TEAM, metadata["name"], document)

    def set_ccm(self, name: str, ccm: dict[str, Any]) -> None:
        """Change `spec.cloudControllerManager`."""
        self.store.patch(OXIDE_CLUSTERS, TEAM, name, {"spec": {"cloudControllerManager": None}})
        self.store.patch(OXIDE_CLUSTERS, TEAM, name, {"spec": {"cloudControllerManager": ccm}})

    # -- what happens -------------------------------------------------------------------------------------------------

    async def look(self, name: str) -> Result:
        """Have the add-on look at a cluster once."""
        return await self.reconciler.reconcile(Request(TEAM, name))

    async def settle(self, name: str) -> None:
        """Have it installed, with Pods that run."""
        await self.look(name)
        self.workloads[name].run_pods()
        await self.look(name)
        assert self.condition(name)[0] == "True", self.condition(name)

    def condition(self, name: str) -> tuple[str, str, str]:
        """Status, reason and message of the condition; empty texts when there is none."""
        status = self.store.get(OXIDE_CLUSTERS, TEAM, name).get("status") or {}
        for each in status.get("conditions", ()):
            if each["type"] == "CloudControllerManagerReady":
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def _create(self, kind: Any, name: str, spec: dict[str, Any], **metadata: Any) -> Document:
        document = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        return self.store.create(kind, TEAM, {**document, "metadata": {"name": name, "namespace": TEAM, **metadata}})

    @contextlib.asynccontextmanager
    async def _enter(self, login: RemoteLogin) -> AsyncIterator[KubeAPI]:
        workload = self.workloads[login.server.removeprefix("https://").partition(".")[0]]
        client = StoreClient(workload.store, workload.weather)
        workload.clients.append(client)
        yield client

    def _connect(self, credentials: Credentials, buckets: TokenBuckets, clock: Clock) -> OxideClient:
        return OxideClient(
            host="http://rack",
            token=credentials.token,
            bucket=buckets.of("http://rack"),
            transport=httpx.ASGITransport(self.rack.app),
            clock=clock,
            randomness=random.Random("oxide"),
        )


class _Silence:
    """The way to a workload cluster."""

    def __init__(self, workload: WorkloadCluster) -> None:
        self._workload = workload

    async def before(self, call: Any) -> None:
        """Wait in vain where nobody answers.

        Raises:
            NoAnswer: Nobody does.
        """
        del call
        await asyncio.sleep(0.01)
        if self._workload.is_dead:
            await asyncio.sleep(DEAD_SECONDS)
            raise errors.NoAnswer(f"no answer in {DEAD_SECONDS:g} s")

    async def after(self, call: Any) -> None:
        """Nothing happens."""


async def _never(host: str, port: int) -> bool:
    del host, port
    return False
