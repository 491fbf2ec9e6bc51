"""Which instance a Node is, and what is written on it (N1, N2, N10 to N12, 1.3, 1.6)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from capox.ccm import node_plan as plan
from capox.ccm.node_marks import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, instance_id_of
from capox.kube.core_objects import Node, NodeAddress
from tests.unit.ccm.nodes import instance, listed, node, uuid_of

ONE = f"oxide://{uuid_of(1)}"
UNINITIALIZED = {"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("provider_id", "number"),
    [
        (ONE, 1),
        ("oxide://" + str(uuid_of(1)).upper(), 1),
        (f"oxide://{uuid_of(1)}/", None),
        (f"oxide://{{{uuid_of(1)}}}", None),
        (f"Oxide://{uuid_of(1)}", None),
        ("oxide://", None),
        ("aws:///eu/i-1", None),
        ("", None),
    ],
)
def test_a_provider_id_names_an_instance_or_none(provider_id: str, number: int | None) -> None:
    """N10: what is not exactly ours is not ours; only the case of letters is forgiven."""
    found = instance_id_of(node(provider_id=provider_id))

    assert found == (uuid_of(number) if number is not None else None)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        pytest.param(node(provider_id=ONE), 1, id="by providerID"),
        pytest.param(node("other-name", provider_id=ONE), 1, id="whatever the name"),
        pytest.param(node("node-2"), 2, id="by name"),
        pytest.param(node("NODE-2"), 2, id="by name in capitals"),
        pytest.param(node("only-host"), 3, id="by hostname"),
        pytest.param(node("named"), 4, id="by name although another has that hostname and the name's does not fit"),
        pytest.param(node("x", annotations={PROVIDED_NODE_IP: "10.0.0.6"}), 6, id="by the kubelet's address"),
        pytest.param(node("x", addresses=[("InternalIP", "10.0.0.6")]), 6, id="by a published address"),
        pytest.param(node("twin", addresses=[("InternalIP", "10.0.0.8")]), 8, id="an address decides between two"),
        pytest.param(node("twin"), plan.Ambiguous, id="two have the hostname"),
        pytest.param(node("x", addresses=[("InternalIP", "10.0.0.9")]), plan.Ambiguous, id="two have the address"),
        pytest.param(node("taken"), plan.Ambiguous, id="another Node is that instance"),
        pytest.param(node("x"), plan.Unmatched, id="nothing fits"),
        pytest.param(node(provider_id="aws:///i-1"), plan.Foreign, id="another cloud's"),
        pytest.param(node(provider_id=f"oxide://{uuid_of(99)}"), plan.Absent, id="gone"),
        pytest.param(node(provider_id=f"oxide://{uuid_of(11)}"), plan.Absent, id="destroyed"),
    ],
)
def test_an_instance_is_found_or_not_guessed(what: Node, expected: Any) -> None:
    """1.6: providerID, else name, else a hostname or address that only one instance has."""
    instances = listed(
        instance(1, "node-1"),
        instance(2, "node-2"),
        instance(3, "third", "only-host"),
        instance(4, "named", "named"),
        instance(5, "fifth", "named"),
        instance(6, "sixth", "host-6"),
        instance(7, "seventh", "twin"),
        instance(8, "eighth", "twin"),
        instance(9, "ninth", "host-9"),
        instance(10, "taken"),
        instance(11, "eleventh", run_state="destroyed"),
    )
    owners = {
        ip_address("10.0.0.6"): {uuid_of(6)},
        ip_address("10.0.0.8"): {uuid_of(8), uuid_of(2)},
        ip_address("10.0.0.9"): {uuid_of(9), uuid_of(3)},
    }
    found = plan.look_up(what, instances, claimed={uuid_of(10)}, owners=owners)

    if isinstance(expected, int):
        assert isinstance(found, plan.Found), found
        assert found.instance.id == uuid_of(expected)
    else:
        assert isinstance(found, expected), found


def test_a_name_that_two_instances_could_mean_is_not_enough() -> None:
    """1.6: guests are called by their hostname; where one has the name and another the hostname, no guess is made."""
    instances = listed(instance(1, "web", "other"), instance(2, "other", "web"))

    assert isinstance(plan.look_up(node("web"), instances, claimed=()), plan.Ambiguous)
    assert isinstance(plan.look_up(node("web"), instances, claimed={uuid_of(2)}), plan.Found)


def test_an_instance_made_again_is_seen() -> None:
    """N12: only of a Ready Node whose name another instance has."""
    instances = listed(instance(2, "node-1"))
    gone = f"oxide://{uuid_of(1)}"
    found = [
        plan.look_up(each, instances, claimed=())
        for each in (node(provider_id=gone), node(provider_id=gone, ready="Unknown"), node("b", provider_id=gone))
    ]

    assert [each.is_replaced for each in found if isinstance(each, plan.Absent)] == [True, False, False]


def test_one_write_has_everything() -> None:
    """N1, N2: providerID only where there is none, labels, the taint off by its key, others kept with all fields."""
    late = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-09-01T00:00:00Z"}
    odd = {"key": UNINITIALIZED_TAINT, "effect": "NoExecute"}
    fresh = node(taints=[UNINITIALIZED, late, odd])
    patch = plan.initialising_patch(fresh, instance(1, "node-1"), {"a": "b"})

    assert patch == {
        "metadata": {"resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"providerID": ONE, "taints": [late]},
    }
    known = node(provider_id="oxide://" + str(uuid_of(1)).upper(), taints=[UNINITIALIZED])
    assert plan.initialising_patch(known, instance(1, "node-1"), {})["spec"] == {"taints": None}


def test_labels_come_in_pairs_and_only_when_they_can_be_labels() -> None:
    """1.3: the type under both names; a value that is no label value gives none, rather than a refused write."""
    labels = plan.instance_labels(instance(1, "node-1", ncpus=16, memory_bytes=64 * 2**30), region="", zone="no/label")

    assert labels == {"node.kubernetes.io/instance-type": "16-64", "beta.kubernetes.io/instance-type": "16-64"}


@pytest.mark.parametrize(
    ("value", "is_one"),
    [("a", True), ("a-b_c.9", True), ("a" * 63, True), ("a" * 64, False), ("-a", False), ("a.", False), ("", False)],
)
def test_label_values(value: str, *, is_one: bool) -> None:
    """1.3: at most 63 characters, alphanumeric at both ends."""
    assert plan.is_label_value(value) is is_one


def test_the_same_addresses_are_not_written() -> None:
    """N6: the list is compared with its order; the same one in another order is another one."""
    fresh = node(addresses=[("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")])
    same = fresh.status.addresses

    assert plan.addresses_patch(fresh, same) is None
    patch = plan.addresses_patch(fresh, same[::-1])
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert [each["address"] for each in patch["status"]["addresses"]] == ["fd00::1", "10.0.0.1"]


@pytest.mark.parametrize(
    ("what", "addresses", "word"),
    [
        (node(provider_id=ONE), [], None),
        (node("host-1", provider_id=ONE), [], None),
        (node("x", provider_id=ONE, addresses=[("InternalIP", "10.0.0.1")]), ["10.0.0.1"], None),
        (node("x", provider_id=ONE), ["10.0.0.1"], "--provider-id"),
        (node(provider_id="oxide://" + str(uuid_of(1)).upper()), [], "Cluster API"),
    ],
)
def test_a_provider_id_that_does_not_fit_is_told(what: Node, addresses: list[str], word: str | None) -> None:
    """N2, N11, 1.6: a kubelet may have chosen it; a name, a hostname or an address has to speak for it."""
    has = [NodeAddress(type="InternalIP", address=address) for address in addresses]
    found = plan.misfit(what, instance(1, "node-1", "host-1"), has)

    assert (found is None) is (word is None)
    assert word is None or word in str(found)
