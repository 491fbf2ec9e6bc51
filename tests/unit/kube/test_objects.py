"""Objects of the Kubernetes API: lenient to read, narrow to write, silent about secrets."""

import base64
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from capox.kube.objects import Condition, ObjectMeta, Resource, Secret, format_timestamp, wire_name

TOKEN = "oxide-token-0123456789abcdef"


def secret_document(**data: str) -> dict[str, Any]:
    """Give a Secret as the apiserver answers it, with the given values encoded."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "oxide-credentials", "namespace": "default"},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


@pytest.mark.parametrize(
    ("name", "on_the_wire"),
    [
        ("name", "name"),
        ("api_version", "apiVersion"),
        ("provider_id", "providerID"),
        ("n_cpus", "nCPUs"),
        ("ssh_public_keys", "sshPublicKeys"),
        ("uid", "uid"),
    ],
)
def test_wire_names_write_initialisms_as_kubernetes_does(name: str, on_the_wire: str) -> None:
    """A Python name becomes camel case, with ID and CPUs in capitals."""
    assert wire_name(name) == on_the_wire


def test_unknown_fields_are_ignored() -> None:
    """An object of a newer version, with fields that nobody here knows, is read."""
    resource = Resource.model_validate(
        {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a", "managedFields": [{}]}, "spec": {"new": 1}}
    )

    assert resource.metadata.name == "a"


def test_null_lists_and_maps_are_empty() -> None:
    """Clients in Go write null for an empty list or map; that is no error."""
    metadata = ObjectMeta.model_validate(
        {"labels": None, "annotations": None, "finalizers": None, "ownerReferences": None}
    )

    assert (metadata.labels, metadata.annotations) == ({}, {})
    assert (metadata.finalizers, metadata.owner_references) == ((), ())


def test_an_apply_document_has_the_identity_and_the_parts_only() -> None:
    """Nothing that was read is written back: no labels, owners, finalizers or spec of others (C-OW-6)."""
    resource = Resource.model_validate(
        {
            "apiVersion": "example.org/v1",
            "kind": "Thing",
            "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}, "finalizers": ["f"], "uid": "u"},
        }
    )

    document = resource.apply_document(spec={"providerID": "oxide://x"})

    assert document == {
        "apiVersion": "example.org/v1",
        "kind": "Thing",
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"providerID": "oxide://x"},
    }


def test_the_apply_document_of_a_cluster_scoped_object_has_no_namespace() -> None:
    """An empty namespace is not written."""
    resource = Resource(api_version="v1", kind="Node", metadata=ObjectMeta(name="n1"))

    assert resource.apply_document()["metadata"] == {"name": "n1"}


def test_owners_are_found_by_group_and_kind() -> None:
    """Neither the owner's version nor its controller flag matters (C-IC-10)."""
    metadata = ObjectMeta.model_validate(
        {
            "ownerReferences": [
                {"apiVersion": "other.io/v1", "kind": "Cluster", "name": "foreign", "uid": "1"},
                {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "ours", "uid": "2"},
                {"apiVersion": "v1", "kind": "Node", "name": "core", "uid": "3"},
            ]
        }
    )

    owner = metadata.owner(group="cluster.x-k8s.io", kind="Cluster")

    assert owner is not None
    assert owner.name == "ours"
    assert metadata.owner(group="cluster.x-k8s.io", kind="Machine") is None
    core = metadata.owner(group="", kind="Node")
    assert core is not None
    assert core.name == "core"


def test_of_two_owners_of_a_kind_the_controller_comes_first() -> None:
    """While a machine changes hands it has two owners of a kind for a moment (C-IM-4)."""
    metadata = ObjectMeta.model_validate(
        {
            "ownerReferences": [
                {"apiVersion": "g/v1", "kind": "K", "name": "plain", "uid": "1"},
                {"apiVersion": "g/v1", "kind": "K", "name": "controller", "uid": "2", "controller": True},
            ]
        }
    )

    owner = metadata.owner(group="g", kind="K")

    assert owner is not None
    assert owner.name == "controller"


def test_deletion_is_known_by_its_timestamp() -> None:
    """An object is being deleted as soon as it has a deletion timestamp."""
    assert not ObjectMeta().is_being_deleted
    assert ObjectMeta.model_validate({"deletionTimestamp": "2026-01-02T03:04:05Z"}).is_being_deleted


def test_times_are_written_as_kubernetes_writes_them() -> None:
    """A time goes out in UTC, in whole seconds, with Z."""
    moment = datetime(2026, 1, 2, 4, 4, 5, 999999, tzinfo=timezone(timedelta(hours=1)))

    assert format_timestamp(moment) == "2026-01-02T03:04:05Z"


def test_a_condition_comes_back_as_it_was_read() -> None:
    """Reading and dumping a condition changes nothing."""
    document = {
        "type": "Ready",
        "status": "True",
        "reason": "InstanceRunning",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": 3,
    }

    assert Condition.model_validate(document).dump() == document


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "Maybe"),
        ("reason", ""),
        ("reason", "two words"),
        ("reason", "1st"),
        ("reason", "r" * 1025),
        ("message", "m" * 32769),
        ("type", ""),
        ("last_transition_time", datetime(2026, 1, 2)),  # noqa: DTZ001  a time without zone is what must be refused
    ],
)
def test_a_condition_that_would_stall_cluster_api_is_refused(field: str, value: object) -> None:
    """A bad reason makes Cluster API's own patch of the owner fail, so none is ever made (C-CO-2)."""
    good = {
        "type": "Ready",
        "status": "True",
        "reason": "Good",
        "message": "",
        "last_transition_time": datetime(2026, 1, 2, tzinfo=UTC),
    }
    Condition.model_validate(good)

    with pytest.raises(ValidationError):
        Condition.model_validate({**good, field: value})


def test_a_secret_is_decoded_and_kept_from_sight() -> None:
    """The value is there for who asks for it, and in no repr, no text and no dump (C-IM-2)."""
    secret = Secret.model_validate(secret_document(**{"oxide-token": TOKEN}))

    assert secret.data["oxide-token"].get_secret_value() == TOKEN.encode()
    text = secret.text("oxide-token")
    assert text is not None
    assert text.get_secret_value() == TOKEN
    encoded = base64.b64encode(TOKEN.encode()).decode()
    for shown in (repr(secret), str(secret), repr(text), repr(secret.dump()), secret.model_dump_json()):
        assert TOKEN not in shown
        assert encoded not in shown


def test_a_secret_without_the_key_or_without_data_has_no_value() -> None:
    """An absent key is absent, not an error: the caller knows which keys are optional."""
    assert Secret.model_validate(secret_document()).text("oxide-ca") is None
    assert Secret.model_validate({**secret_document(), "data": None}).text("oxide-ca") is None


def test_errors_about_a_secret_do_not_tell_it() -> None:
    """A value that cannot be decoded is named by its key."""
    document = secret_document()
    document["data"] = {"oxide-token": f"!{TOKEN}"}

    with pytest.raises(ValidationError, match="key 'oxide-token' of the Secret's data is not base64") as failure:
        Secret.model_validate(document)

    assert TOKEN not in str(failure.value)


def test_a_value_that_is_no_text_is_named_by_secret_and_key() -> None:
    """Bytes that are not UTF-8 are refused as text, without quoting them."""
    document = secret_document()
    document["data"] = {"oxide-host": base64.b64encode(b"\xff\xfe").decode()}

    with pytest.raises(ValueError, match="key 'oxide-host' of Secret 'default/oxide-credentials' is not UTF-8 text"):
        Secret.model_validate(document).text("oxide-host")
