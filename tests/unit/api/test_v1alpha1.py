"""Our kinds read what the Go provider leaves, treat `""` as absent, and stay readable whatever the apiserver holds."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from capox.api.quantity import Quantity
from capox.api.v1alpha1 import (
    CLUSTER_FINALIZER,
    MACHINE_FINALIZER,
    ConditionType,
    OxideCluster,
    OxideClusterTemplate,
    OxideMachine,
    OxideMachineTemplate,
    Reason,
    instance_reason,
)
from capox.kube.conditions import Finding, get_condition, is_condition_true, set_condition
from capox.kube.objects import REASON_PATTERN
from tests.unit.api import go_provider


def without_empty_texts(document: Any) -> Any:
    """Give a document without the fields that are `""`, which mean absent."""
    if isinstance(document, dict):
        return {key: without_empty_texts(value) for key, value in document.items() if value != ""}
    return [without_empty_texts(item) for item in document] if isinstance(document, list) else document


def test_the_go_providers_cluster_is_read() -> None:
    """Every field of an OxideCluster that the Go provider left is found where it was."""
    cluster = OxideCluster.model_validate(go_provider.oxide_cluster())

    assert cluster.metadata.finalizers == (CLUSTER_FINALIZER,)
    assert (cluster.spec.credentials_ref.name, cluster.spec.credentials_ref.namespace) == (
        "oxide-credentials",
        "default",
    )
    assert (cluster.spec.project, cluster.spec.vpc, cluster.spec.subnet) == ("kubernetes", "default", "default")
    assert cluster.spec.control_plane_endpoint is not None
    assert (cluster.spec.control_plane_endpoint.host, cluster.spec.control_plane_endpoint.port) == (
        "45.154.216.131",
        6443,
    )
    assert cluster.status.initialization.provisioned is True
    assert is_condition_true(cluster.status.conditions, ConditionType.READY)
    attached = get_condition(cluster.status.conditions, ConditionType.FLOATING_IP_ATTACHED)
    assert attached is not None
    assert attached.reason == Reason.FLOATING_IP_ATTACHED


def test_the_go_providers_machine_is_read() -> None:
    """Every field of an OxideMachine that the Go provider left is found where it was."""
    machine = OxideMachine.model_validate(go_provider.oxide_machine())

    assert machine.metadata.finalizers == (MACHINE_FINALIZER,)
    assert machine.spec.provider_id == f"oxide://{go_provider.INSTANCE_ID}"
    assert (machine.spec.n_cpus, machine.spec.memory, machine.spec.disk_size) == (4, Quantity("8Gi"), Quantity("50Gi"))
    assert machine.spec.image_id == go_provider.IMAGE_ID
    assert [(disk.size, disk.block_size) for disk in machine.spec.data_disks] == [(Quantity("20Gi"), 4096)]
    assert machine.status.initialization.provisioned is True
    ready = get_condition(machine.status.conditions, ConditionType.READY)
    assert ready is not None
    assert ready.reason == instance_reason("running")


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (OxideCluster, go_provider.oxide_cluster()),
        (OxideMachine, go_provider.oxide_machine()),
        (OxideMachine, go_provider.oxide_machine_before_its_instance()),
        (OxideMachineTemplate, go_provider.oxide_machine_template()),
    ],
    ids=["cluster", "machine", "machine before its instance", "machine template"],
)
def test_spec_and_status_of_the_go_provider_survive_the_round_trip(
    model: type[OxideCluster | OxideMachine | OxideMachineTemplate], document: dict[str, Any]
) -> None:
    """Reading and dumping loses no field and adds none that carries a value; only `""` becomes absent."""
    dumped = model.model_validate(document).dump()

    assert dumped["spec"] == without_empty_texts(document["spec"])
    if "status" in document:
        assert dumped["status"]["initialization"] == document["status"]["initialization"]
        assert dumped["status"]["conditions"] == document["status"]["conditions"]


def test_a_machine_before_its_instance_has_neither_identity_nor_progress() -> None:
    """The Go provider writes an empty `initialization`; it means not provisioned."""
    machine = OxideMachine.model_validate(go_provider.oxide_machine_before_its_instance())

    assert machine.spec.provider_id is None
    assert machine.status.initialization.provisioned is None


def test_empty_texts_are_absent() -> None:
    """Templates write `""` for an unset variable, in every optional text."""
    document = go_provider.oxide_cluster()
    document["spec"] |= {"vpc": "", "subnet": "", "ipPool": "", "ipType": "", "controlPlaneEndpoint": {"host": ""}}
    document["spec"]["credentialsRef"]["namespace"] = ""

    spec = OxideCluster.model_validate(document).spec

    assert (spec.vpc, spec.subnet, spec.ip_pool, spec.ip_type, spec.credentials_ref.namespace) == (None,) * 5
    assert spec.control_plane_endpoint is not None
    assert spec.control_plane_endpoint.host is None
    machine = go_provider.oxide_machine()
    machine["spec"] |= {"providerID": "", "ipPool": ""}
    assert OxideMachine.model_validate(machine).spec.provider_id is None
    assert OxideMachine.model_validate(machine).spec.ip_pool is None


def test_an_object_beyond_its_limits_is_readable() -> None:
    """The limits are the apiserver's: what was stored before a limit existed must be deletable, so it must be read."""
    document = go_provider.oxide_machine()
    document["spec"] |= {"nCPUs": 1000, "memory": "1Mi", "imageID": "ubuntu", "dataDisks": [{"size": 1}] * 30}
    document["spec"]["somethingNew"] = {"a": 1}

    spec = OxideMachine.model_validate(document).spec

    assert (spec.n_cpus, spec.image_id, len(spec.data_disks)) == (1000, "ubuntu", 30)


def test_a_cluster_template_needs_no_endpoint() -> None:
    """The endpoint is made a cluster at a time, so a template has none (C-T-2)."""
    template = OxideClusterTemplate.model_validate(
        {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "OxideClusterTemplate",
            "metadata": {"name": "oxide"},
            "spec": {"template": {"spec": {"credentialsRef": {"name": "oxide-credentials"}, "project": "k8s"}}},
        }
    )

    assert template.spec.template.spec.control_plane_endpoint is None
    assert template.dump()["spec"]["template"]["spec"] == {
        "credentialsRef": {"name": "oxide-credentials"},
        "project": "k8s",
    }


def test_a_template_makes_what_the_machine_takes() -> None:
    """Cluster API clones `spec.template.spec` as it is, so it is the spec of the kind itself (C-T-1)."""
    template = OxideMachineTemplate.model_validate(go_provider.oxide_machine_template())

    cloned = {**go_provider.oxide_machine(), "spec": template.dump()["spec"]["template"]["spec"]}

    assert OxideMachine.model_validate(cloned).spec == template.spec.template.spec


@pytest.mark.parametrize(
    ("run_state", "reason"),
    [
        ("running", "InstanceRunning"),
        ("stopped", "InstanceStopped"),
        ("start_failed", "InstanceStartFailed"),
        ("", "InstanceUnknown"),
        ("--", "InstanceUnknown"),
    ],
)
def test_the_run_state_is_told_in_camel_case(run_state: str, reason: str) -> None:
    """The reason of a live instance is its run state, as the Go provider tells it; a new state is no error."""
    assert instance_reason(run_state) == reason
    assert re.search(REASON_PATTERN, instance_reason(run_state))


@pytest.mark.parametrize("word", [*ConditionType, *Reason])
def test_every_word_is_one_that_cluster_api_takes_and_has_a_meaning(word: ConditionType | Reason) -> None:
    """Types and reasons fit Cluster API's pattern (C-CO-2), and the reference page says what each means."""
    assert re.search(REASON_PATTERN, word.value)
    assert word.meaning.endswith(".")


def test_words_are_plain_text_on_the_wire() -> None:
    """A condition made from the constants is dumped as the apiserver expects it."""
    finding = Finding(ConditionType.READY, "False", Reason.WAITING_FOR_BOOTSTRAP_DATA, "no Secret yet")
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    (condition,) = set_condition((), finding, observed_generation=2, now=now)

    assert condition.dump() == {
        "type": "Ready",
        "status": "False",
        "reason": "WaitingForBootstrapData",
        "message": "no Secret yet",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": 2,
    }
    assert type(condition.dump()["type"]) is str
