"""Credentials that come late, are shared, changed and taken away, in the simulated world."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from capox.api.v1alpha1 import CREDENTIALS_FINALIZER
from capox.kube.kind import SECRETS
from capox.provider.kinds import OXIDE_CLUSTERS
from capox.provider.secret_guard import MOVE_LABEL
from tests.sim.cluster_api import CREDENTIALS, NAMESPACE
from tests.sim.loop import simulated
from tests.sim.world import TOKEN, World


def is_provisioned(world: World) -> bool:
    """Whether the cluster is."""
    (cluster,) = world.store.list(OXIDE_CLUSTERS, NAMESPACE)
    return bool((cluster.get("status") or {}).get("initialization", {}).get("provisioned"))


@simulated
async def test_a_secret_that_comes_late_is_found_within_a_minute() -> None:
    """Nobody watches Secrets, and still a person who makes the missing one need not wait long, and restarts nothing."""
    world = World(0)
    world.clear_up()
    world.store.delete(SECRETS, NAMESPACE, CREDENTIALS)
    world.cluster_api.add_cluster("web", ipType="v4")
    await world.pass_time(140)
    assert not is_provisioned(world)

    world.cluster_api.add_credentials("http://rack", TOKEN)
    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned")
    await world.end()


def guarded(world: World) -> set[str]:
    """The names of the Secrets that have our finalizer and the label for moves."""
    found: list[Any] = world.store.list(SECRETS, NAMESPACE)
    return {
        each["metadata"]["name"]
        for each in found
        if CREDENTIALS_FINALIZER in each["metadata"].get("finalizers", ())
        and MOVE_LABEL in (each["metadata"].get("labels") or {})
    }


def add_secret(world: World, name: str) -> None:
    """Make a Secret with credentials."""
    data = {"oxide-host": b"http://rack", "oxide-token": TOKEN.encode()}
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    world.store.create(SECRETS, NAMESPACE, document)


def set_ccm_secret(world: World, name: str | None) -> None:
    """Name the Secret of the cloud controller manager's own credentials, or none."""
    manager = {"credentialsRef": {"name": name}} if name is not None else None
    world.store.patch(OXIDE_CLUSTERS, NAMESPACE, "web", {"spec": {"cloudControllerManager": manager}})


def names(world: World, kind: Any) -> set[str]:
    """The names of what there is of a kind."""
    return {each["metadata"]["name"] for each in world.store.list(kind, NAMESPACE)}


@simulated
async def test_shared_credentials_stay_until_the_last_cluster_is_gone() -> None:
    """Finalizer and label are there while one cluster uses the Secret; afterwards it is the user's again."""
    world = World(0)
    world.clear_up()
    for cluster in ("web", "api"):
        world.cluster_api.add_cluster(cluster, ipType="v4")
    await world.until(lambda: len(world.rack.state.floating_ips) == 2, 60, "both clusters have an address")
    assert guarded(world) == {CREDENTIALS}

    world.cluster_api.delete_cluster("web")
    await world.until(lambda: names(world, OXIDE_CLUSTERS) == {"api"}, 120, "the first cluster is gone")
    assert guarded(world) == {CREDENTIALS}
    world.cluster_api.delete_cluster("api")
    await world.until(lambda: not names(world, OXIDE_CLUSTERS), 120, "the second cluster is gone")

    (secret,) = world.store.list(SECRETS, NAMESPACE)
    assert not secret["metadata"].get("finalizers")
    assert MOVE_LABEL not in (secret["metadata"].get("labels") or {})
    await world.end()


@simulated
async def test_credentials_that_are_not_used_any_more_are_let_go() -> None:
    """A cluster that refers to another Secret keeps that one, and the one before can be deleted."""
    world = World(0)
    world.clear_up()
    world.cluster_api.add_cluster("web", ipType="v4")
    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned")
    add_secret(world, "next")

    world.store.patch(OXIDE_CLUSTERS, NAMESPACE, "web", {"spec": {"credentialsRef": {"name": "next"}}})
    await world.until(lambda: guarded(world) == {"next"}, 60, "only the new Secret is kept")

    world.store.delete(SECRETS, NAMESPACE, CREDENTIALS)
    assert names(world, SECRETS) == {"next"}
    await world.end()


@simulated
async def test_credentials_of_the_cloud_controller_manager_stay_as_long() -> None:
    """A Secret of its own is kept from when it is there to the end of the cluster, whoever deletes it before."""
    world = World(0)
    world.clear_up()
    manager = {"credentialsRef": {"name": "oxide-ccm"}}
    world.cluster_api.add_cluster("web", ipType="v4", cloudControllerManager=manager)
    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned without it")
    assert guarded(world) == {CREDENTIALS}
    add_secret(world, "oxide-ccm")
    await world.until(lambda: guarded(world) == {CREDENTIALS, "oxide-ccm"}, 60, "one that comes late is kept")

    world.store.delete(SECRETS, NAMESPACE, "oxide-ccm")
    await world.pass_time(30)
    assert names(world, SECRETS) == {CREDENTIALS, "oxide-ccm"}
    world.cluster_api.delete_cluster("web")
    await world.until(lambda: not names(world, OXIDE_CLUSTERS), 120, "the cluster is gone")
    assert names(world, SECRETS) == {CREDENTIALS}
    assert guarded(world) == set()
    await world.end()


@simulated
async def test_other_credentials_of_the_cloud_controller_manager_are_let_go() -> None:
    """Named no more, a Secret is the user's again, unless this or another cluster has it for something else."""
    world = World(0)
    world.clear_up()
    for name in ("first", "second"):
        add_secret(world, name)
    world.cluster_api.add_cluster("web", ipType="v4")
    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned")
    set_ccm_secret(world, "first")
    await world.until(lambda: guarded(world) == {CREDENTIALS, "first"}, 60, "it is kept")
    set_ccm_secret(world, "second")
    await world.until(lambda: guarded(world) == {CREDENTIALS, "second"}, 60, "the other is kept in its place")

    world.cluster_api.add_cluster("api", ipType="v4", credentialsRef={"name": "second"})
    await world.until(lambda: len(world.rack.state.floating_ips) == 2, 60, "another cluster uses it, too")
    set_ccm_secret(world, CREDENTIALS)
    await world.pass_time(60)
    assert guarded(world) == {CREDENTIALS, "second"}
    set_ccm_secret(world, None)
    await world.pass_time(60)
    assert guarded(world) == {CREDENTIALS, "second"}
    cluster = world.store.get(OXIDE_CLUSTERS, NAMESPACE, "web")
    assert "cloudControllerManagerCredentialsRef" not in cluster["status"]

    for name in ("web", "api"):
        world.cluster_api.delete_cluster(name)
    await world.until(lambda: not names(world, OXIDE_CLUSTERS), 120, "the clusters are gone")
    assert guarded(world) == set()
    await world.end()


@simulated
async def test_secret_that_cannot_be_patched_stops_nothing() -> None:
    """Where the provider may not patch it, an Event says so; the cluster is made and deleted all the same."""
    world = World(0)
    world.clear_up()
    world.store.add_rule(SECRETS, lambda before, _: "not allowed here" if before is not None else None)
    world.cluster_api.add_cluster("web", ipType="v4")

    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned")
    assert any(reason == "CredentialsNotGuarded" for _, reason, _ in world.recorded.events)
    world.cluster_api.delete_cluster("web")
    await world.until(lambda: not names(world, OXIDE_CLUSTERS), 120, "the cluster is gone")
    await world.end()


@simulated
async def test_crash_between_the_last_writes_strands_nothing() -> None:
    """The Secret has vanished, the process has died before it could let the cluster go: the next one does."""
    world = World(0)
    world.clear_up()
    world.cluster_api.add_cluster("web", ipType="v4")
    await world.until(lambda: is_provisioned(world), 60, "the cluster is provisioned")
    crashes: list[asyncio.Task[None]] = []

    def on_change(change: Any) -> None:
        """See a change of the store."""
        if change.kind == SECRETS and change.type == "DELETED" and not crashes:
            crashes.append(asyncio.create_task(world.crash()))

    world.store.subscribe(on_change)
    world.store.delete(SECRETS, NAMESPACE, CREDENTIALS)
    world.cluster_api.delete_cluster("web")

    await world.until(lambda: not names(world, OXIDE_CLUSTERS), 120, "the cluster is gone")
    assert len(crashes) == 1
    assert not world.store.list(SECRETS, NAMESPACE)
    assert not list(world.rack.state.floating_ips)
    await world.end()
