"""The stories that hold for a Kubernetes API, whichever one it is.

A subclass gives the fixtures `api` (a `KubeAPI`), `namespace` (one that nobody else uses) and `end_namespace` (begins
the end of a namespace). The kinds OxideMachine and Secret are served.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from capox.api import v1alpha1
from capox.kube import errors
from capox.kube.client import KubeAPI
from capox.kube.kind import SECRETS, Kind
from capox.kube.objects import Resource

MACHINES = Kind(v1alpha1.OxideMachine, v1alpha1.GROUP, v1alpha1.VERSION, "oxidemachines")
IMAGE_ID = "0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c00"
FINALIZER = "example.com/held"
PROVIDER_ID = "oxide://0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c01"
OTHER_PROVIDER_ID = "oxide://0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c02"


class Unknown(Resource):
    """A kind that nobody serves."""


def machine(namespace: str, name: str, **metadata: Any) -> dict[str, Any]:
    """Give the document of an OxideMachine."""
    return {
        "apiVersion": MACHINES.api_version,
        "kind": "OxideMachine",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "nCPUs": 2,
            "memory": "4Gi",
            "diskSize": "10Gi",
            "imageID": IMAGE_ID,
            "powerPolicy": "KeepRunning",
        },
    }


def secret(namespace: str, name: str, **data: bytes) -> dict[str, Any]:
    """Give the document of a Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


class KubernetesStories:
    """What capox relies on."""

    # Making and reading.

    async def test_what_is_made_can_be_read(self, api: KubeAPI, namespace: str) -> None:
        """A created object has a uid, a version and generation 1, and reading gives the same."""
        made = await api.create(MACHINES, namespace, machine(namespace, "one", labels={"a": "1"}))
        read = await api.get(MACHINES, namespace, "one")

        assert read == made
        assert made.metadata.uid
        assert made.metadata.resource_version
        assert made.metadata.generation == 1
        assert made.metadata.labels == {"a": "1"}
        assert made.spec.n_cpus == 2

    async def test_a_secret_is_read_with_its_values(self, api: KubeAPI, namespace: str) -> None:
        """Values come decoded."""
        await api.create(SECRETS, namespace, secret(namespace, "one", token=b"t0ken"))
        read = await api.get(SECRETS, namespace, "one")
        token = read.text("token")

        assert token is not None
        assert token.get_secret_value() == "t0ken"

    async def test_a_name_can_be_generated(self, api: KubeAPI, namespace: str) -> None:
        """With generateName each object gets a name of its own."""
        document = secret(namespace, "")
        document["metadata"] = {"generateName": "some-", "namespace": namespace}
        names = {(await api.create(SECRETS, namespace, document)).metadata.name for _ in range(2)}

        assert len(names) == 2
        assert all(name.startswith("some-") and len(name) > 5 for name in names)

    async def test_a_status_is_not_made_with_the_object(self, api: KubeAPI, namespace: str) -> None:
        """Status is written by its subresource only, also when the object is made (as clusterctl move does)."""
        document = machine(namespace, "one") | {"status": {"initialization": {"provisioned": True}}}
        made = await api.create(MACHINES, namespace, document)

        assert made.status == v1alpha1.OxideMachineStatus()

    async def test_a_second_object_of_the_name_is_refused(self, api: KubeAPI, namespace: str) -> None:
        """AlreadyExists, which is not Conflict."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        with pytest.raises(errors.AlreadyExists):
            await api.create(MACHINES, namespace, machine(namespace, "one"))

    @pytest.mark.parametrize("name", ["absent", "", ".", "..", "a/b", "a%2Fb", "../secrets/one"])
    async def test_what_is_not_there_is_not_found(self, api: KubeAPI, namespace: str, name: str) -> None:
        """Also under a name that no object can have, which must not become the path of something else."""
        await api.create(SECRETS, namespace, secret(namespace, "one"))
        with pytest.raises(errors.NotFound):
            await api.get(MACHINES, namespace, name)
        with pytest.raises(errors.NotFound):
            await api.patch(MACHINES, namespace, name, {"metadata": {"labels": {"a": "1"}}})
        with pytest.raises(errors.NotFound):
            await api.patch(MACHINES, namespace, name, {"status": {}}, subresource="status")
        with pytest.raises(errors.NotFound):
            await api.delete(MACHINES, namespace, name)

    async def test_a_kind_that_is_not_served_is_told_apart(self, api: KubeAPI, namespace: str) -> None:
        """A missing CRD is not a missing object: whoever waits for an absence must not take it for one."""
        for group in ("nobody.example.com", v1alpha1.GROUP):
            kind = Kind(Unknown, group, "v1alpha1", "unknowns")
            document = {"apiVersion": kind.api_version, "kind": "Unknown", "metadata": {"name": "one"}}
            with pytest.raises(errors.KindNotServed):
                await api.get(kind, namespace, "one")
            with pytest.raises(errors.KindNotServed):
                await api.list(kind, namespace)
            with pytest.raises(errors.KindNotServed):
                await api.create(kind, namespace, document)
            with pytest.raises(errors.KindNotServed):
                await api.delete(kind, namespace, "one")

    async def test_a_document_of_another_kind_is_refused(self, api: KubeAPI, namespace: str) -> None:
        """A Secret is not an OxideMachine."""
        with pytest.raises(errors.Invalid):
            await api.create(MACHINES, namespace, secret(namespace, "one"))

    async def test_a_document_of_another_namespace_is_refused(self, api: KubeAPI, namespace: str) -> None:
        """The namespace of the call and that of the document are one."""
        with pytest.raises(errors.Invalid):
            await api.create(MACHINES, namespace, machine("elsewhere", "one"))

    async def test_a_namespace_that_is_not_there_takes_nothing(self, api: KubeAPI) -> None:
        """NotFound, of the namespace."""
        with pytest.raises(errors.NotFound, match="never-made"):
            await api.create(MACHINES, "never-made", machine("never-made", "one"))

    # Lists.

    async def test_a_list_has_what_has_the_labels(self, api: KubeAPI, namespace: str) -> None:
        """By value, by mere presence, by both; in order of names; none at all is all."""
        for name, labels in (
            ("c", {"cluster": "x", "role": ""}),
            ("a", {"cluster": "x"}),
            ("b", {"cluster": "y", "role": ""}),
            ("d", {}),
        ):
            await api.create(MACHINES, namespace, machine(namespace, name, labels=labels))

        async def names(labels: dict[str, str | None] | None) -> list[str]:
            """Give the names that a list finds."""
            return [found.metadata.name for found in await api.list(MACHINES, namespace, labels)]

        assert await names(None) == ["a", "b", "c", "d"]
        assert await names({"cluster": "x"}) == ["a", "c"]
        assert await names({"role": None}) == ["b", "c"]
        assert await names({"cluster": "x", "role": None}) == ["c"]
        assert await names({"cluster": "z"}) == []

    async def test_a_list_of_all_namespaces_has_this_one_too(self, api: KubeAPI, namespace: str) -> None:
        """None as namespace means every one."""
        await api.create(MACHINES, namespace, machine(namespace, "one", labels={"in": namespace}))
        found = await api.list(MACHINES, None, {"in": namespace})

        assert [(item.metadata.namespace, item.metadata.name) for item in found] == [(namespace, "one")]
        assert found[0].kind == "OxideMachine"

    async def test_a_list_of_a_namespace_that_is_not_there_is_empty(self, api: KubeAPI) -> None:
        """No error."""
        assert await api.list(MACHINES, "never-made") == []

    # Patches.

    async def test_a_patch_merges(self, api: KubeAPI, namespace: str) -> None:
        """Maps are merged, null removes, lists are replaced whole, what is not named stays."""
        document = machine(namespace, "one", labels={"a": "1", "b": "2"}, finalizers=["example.com/old"])
        before = await api.create(MACHINES, namespace, document)
        after = await api.patch(
            MACHINES,
            namespace,
            "one",
            {
                "metadata": {"labels": {"a": None, "c": "3"}, "finalizers": [FINALIZER]},
                "spec": {"powerPolicy": "Observe"},
            },
        )

        assert after.metadata.labels == {"b": "2", "c": "3"}
        assert after.metadata.finalizers == (FINALIZER,)
        assert after.spec.power_policy == "Observe"
        assert after.spec.memory == before.spec.memory
        assert after == await api.get(MACHINES, namespace, "one")

    async def test_only_the_spec_raises_the_generation(self, api: KubeAPI, namespace: str) -> None:
        """Metadata and status do not (C-IM-5)."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        labelled = await api.patch(MACHINES, namespace, "one", {"metadata": {"labels": {"a": "1"}}})
        status = {"status": {"initialization": {"provisioned": True}}}
        reported = await api.patch(MACHINES, namespace, "one", status, subresource="status")
        changed = await api.patch(MACHINES, namespace, "one", {"spec": {"powerPolicy": "Observe"}})

        assert [item.metadata.generation for item in (labelled, reported, changed)] == [1, 1, 2]

    async def test_a_patch_that_changes_nothing_is_no_write(self, api: KubeAPI, namespace: str) -> None:
        """The version stays, so nobody is woken (C-CO-7)."""
        before = await api.create(MACHINES, namespace, machine(namespace, "one", labels={"a": "1"}))
        await api.patch(MACHINES, namespace, "one", {"metadata": {"labels": {"a": "1", "b": None}}})
        await api.patch(MACHINES, namespace, "one", {"spec": {"powerPolicy": "KeepRunning"}})
        await api.patch(MACHINES, namespace, "one", {"metadata": {"finalizers": []}})

        assert (await api.get(MACHINES, namespace, "one")).metadata == before.metadata

    async def test_status_and_the_rest_are_written_apart(self, api: KubeAPI, namespace: str) -> None:
        """A patch of the object leaves the status alone, a patch of the status leaves spec and metadata alone."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        both: dict[str, Any] = {
            "metadata": {"labels": {"a": "1"}},
            "spec": {"powerPolicy": "Observe"},
            "status": {"initialization": {"provisioned": True}},
        }
        reported = await api.patch(MACHINES, namespace, "one", both, subresource="status")
        assert reported.status.initialization.provisioned is True
        assert (reported.spec.power_policy, dict(reported.metadata.labels)) == ("KeepRunning", {})

        changed = await api.patch(MACHINES, namespace, "one", both | {"status": None})
        assert changed.status == reported.status
        assert (changed.spec.power_policy, dict(changed.metadata.labels)) == ("Observe", {"a": "1"})

    async def test_an_old_version_is_a_conflict(self, api: KubeAPI, namespace: str) -> None:
        """A patch that names the version it was planned on does not undo what came between (C-ALL-10)."""
        old = (await api.create(MACHINES, namespace, machine(namespace, "one"))).metadata.resource_version
        await api.patch(MACHINES, namespace, "one", {"metadata": {"finalizers": [FINALIZER]}})
        with pytest.raises(errors.Conflict):
            await api.patch(MACHINES, namespace, "one", {"metadata": {"resourceVersion": old, "finalizers": []}})
        status = {"metadata": {"resourceVersion": old}, "status": {"initialization": {"provisioned": True}}}
        with pytest.raises(errors.Conflict):
            await api.patch(MACHINES, namespace, "one", status, subresource="status")

        now = await api.get(MACHINES, namespace, "one")
        assert now.metadata.finalizers == (FINALIZER,)
        named = {"metadata": {"resourceVersion": now.metadata.resource_version, "finalizers": ["example.com/new"]}}
        assert (await api.patch(MACHINES, namespace, "one", named)).metadata.finalizers == ("example.com/new",)

    async def test_another_uid_is_refused(self, api: KubeAPI, namespace: str) -> None:
        """A patch meant for an object that is gone does not hit its successor: Invalid, since uids are fixed."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        foreign = {"metadata": {"uid": "2b9f3a3e-60a5-45d6-8f0f-64b9b5a0f7a1", "labels": {"a": "1"}}}
        with pytest.raises(errors.Invalid):
            await api.patch(MACHINES, namespace, "one", foreign)

    async def test_a_rule_of_the_kind_refuses(self, api: KubeAPI, namespace: str) -> None:
        """A provider ID is set once."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        await api.patch(MACHINES, namespace, "one", {"spec": {"providerID": PROVIDER_ID}})
        for value in (OTHER_PROVIDER_ID, None):
            with pytest.raises(errors.Invalid):
                await api.patch(MACHINES, namespace, "one", {"spec": {"providerID": value}})

        again = await api.patch(MACHINES, namespace, "one", {"spec": {"providerID": PROVIDER_ID}})
        assert again.spec.provider_id == PROVIDER_ID

    # Server-side apply.

    async def test_apply_makes_and_changes(self, api: KubeAPI, namespace: str) -> None:
        """What is named is set, whoever set it before; what others set stays."""
        first = await api.apply(MACHINES, namespace, "one", machine(namespace, "one", labels={"a": "1"}))
        await api.patch(
            MACHINES, namespace, "one", {"metadata": {"labels": {"others": "1"}}, "spec": {"powerPolicy": "Observe"}}
        )
        second = await api.apply(MACHINES, namespace, "one", machine(namespace, "one", labels={"a": "2"}))

        assert first.metadata.labels == {"a": "1"}
        assert second.metadata.labels == {"a": "2", "others": "1"}
        assert second.spec.power_policy == "KeepRunning"

    async def test_apply_removes_what_is_named_no_more(self, api: KubeAPI, namespace: str) -> None:
        """A field that an earlier document had and this one has not goes away."""
        await api.apply(MACHINES, namespace, "one", machine(namespace, "one", labels={"a": "1", "b": "2"}))
        after = await api.apply(MACHINES, namespace, "one", machine(namespace, "one", labels={"b": "2"}))

        assert after.metadata.labels == {"b": "2"}

    # Deletion.

    async def test_without_finalizers_deletion_is_the_end(self, api: KubeAPI, namespace: str) -> None:
        """The object is gone at once, and a second deletion finds nothing."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        await api.delete(MACHINES, namespace, "one")

        with pytest.raises(errors.NotFound):
            await api.get(MACHINES, namespace, "one")
        with pytest.raises(errors.NotFound):
            await api.delete(MACHINES, namespace, "one")

    async def test_a_built_in_kind_wants_qualified_finalizers(self, api: KubeAPI, namespace: str) -> None:
        """A name without a slash is refused on a Secret, and taken on kinds that CRDs define."""
        await api.create(SECRETS, namespace, secret(namespace, "one"))
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        bare = {"metadata": {"finalizers": ["oxidecluster.example.com"]}}

        with pytest.raises(errors.Invalid):
            await api.patch(SECRETS, namespace, "one", bare)
        assert (await api.patch(MACHINES, namespace, "one", bare)).metadata.finalizers == ("oxidecluster.example.com",)
        await api.patch(MACHINES, namespace, "one", {"metadata": {"finalizers": None}})
        held = await api.patch(SECRETS, namespace, "one", {"metadata": {"finalizers": [FINALIZER]}})
        assert held.metadata.finalizers == (FINALIZER,)
        await api.patch(SECRETS, namespace, "one", {"metadata": {"finalizers": None}})

    async def test_a_finalizer_holds_an_object(self, api: KubeAPI, namespace: str) -> None:
        """It is marked, once; taking the last finalizer off ends it, and that patch is answered with what it was."""
        await api.create(MACHINES, namespace, machine(namespace, "one", finalizers=[FINALIZER]))
        await api.delete(MACHINES, namespace, "one")
        marked = await api.get(MACHINES, namespace, "one")
        await api.delete(MACHINES, namespace, "one")

        assert marked.metadata.is_being_deleted
        assert marked.metadata.generation == 2
        assert await api.get(MACHINES, namespace, "one") == marked

        version = marked.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version, "finalizers": []}}
        last = await api.patch(MACHINES, namespace, "one", patch)
        assert (last.metadata.uid, last.metadata.finalizers) == (marked.metadata.uid, ())
        with pytest.raises(errors.NotFound):
            await api.get(MACHINES, namespace, "one")

    async def test_what_is_being_deleted_takes_writes_but_no_finalizer(self, api: KubeAPI, namespace: str) -> None:
        """Its status can be reported and its spec recorded until the end; it cannot be held by somebody new."""
        await api.create(MACHINES, namespace, machine(namespace, "one", finalizers=[FINALIZER]))
        await api.delete(MACHINES, namespace, "one")
        with pytest.raises(errors.Invalid):
            await api.patch(MACHINES, namespace, "one", {"metadata": {"finalizers": [FINALIZER, "example.com/new"]}})
        await api.patch(MACHINES, namespace, "one", {"spec": {"providerID": PROVIDER_ID}})
        status = {"status": {"initialization": {"provisioned": True}}}
        reported = await api.patch(MACHINES, namespace, "one", status, subresource="status")

        assert reported.metadata.is_being_deleted
        assert reported.spec.provider_id == PROVIDER_ID
        await api.patch(MACHINES, namespace, "one", {"metadata": {"finalizers": None}})

    async def test_a_deletion_can_be_meant_for_one_object_only(self, api: KubeAPI, namespace: str) -> None:
        """With a uid, the successor of the same name is left alone."""
        await api.create(MACHINES, namespace, machine(namespace, "one"))
        uid = (await api.get(MACHINES, namespace, "one")).metadata.uid
        with pytest.raises(errors.Conflict):
            await api.delete(MACHINES, namespace, "one", uid="2b9f3a3e-60a5-45d6-8f0f-64b9b5a0f7a1")
        assert (await api.get(MACHINES, namespace, "one")).metadata.uid == uid

        await api.delete(MACHINES, namespace, "one", uid=uid)
        with pytest.raises(errors.NotFound):
            await api.get(MACHINES, namespace, "one")

    async def test_a_namespace_at_its_end_takes_nothing_new(
        self, api: KubeAPI, namespace: str, end_namespace: Callable[[str], None]
    ) -> None:
        """Creating is Forbidden and says why; what is held can still be written (M-12)."""
        await api.create(MACHINES, namespace, machine(namespace, "held", finalizers=[FINALIZER]))
        end_namespace(namespace)
        with pytest.raises(errors.Forbidden) as refused:
            await api.create(SECRETS, namespace, secret(namespace, "new"))

        assert refused.value.is_namespace_terminating
        await api.patch(MACHINES, namespace, "held", {"metadata": {"labels": {"a": "1"}}})
        await api.patch(MACHINES, namespace, "held", {"metadata": {"finalizers": None}})
