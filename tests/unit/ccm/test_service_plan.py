"""What a Service wants, what its status says, which nodes come into question: pure tables (S4, S18 to S21, V1, 3.5)."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from capox.ccm.kinds import NODES, PODS, SERVICES
from capox.ccm.placement import Port
from capox.ccm.proxy_mode import mode_of
from capox.ccm.service_plan import FINALIZER, Task, desired, entries_of, ingress_patch, notices_of, task_of
from capox.ccm.service_targets_plan import NOT_READY_SECONDS, grace_left_seconds, host_ports, is_excluded, target_of
from capox.ccm.wanted import AddressWish, Entry, Refusal, Wanted
from capox.kube.core_objects import Node, Service

NOW = datetime.datetime(2026, 9, 1, 12, 0, tzinfo=datetime.UTC)
PREFIX = "oxide.computer/floating-ip"


def service(annotations: dict[str, str] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Service:
    """A Service of type LoadBalancer with one IPv4 address, unless told otherwise."""
    document = {
        "metadata": {"name": "web", "namespace": "team", "uid": "uid-1", "annotations": annotations or {}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "ipFamilies": ["IPv4"], **spec},
    }
    document["metadata"] |= metadata or {}
    return SERVICES.parse(document)


def node(metadata: dict[str, Any] | None = None, *, ready: str = "True", since: float = 0, **spec: Any) -> Node:
    """A Ready Node of an instance, unless told otherwise."""
    changed = (NOW - datetime.timedelta(seconds=since)).isoformat()
    return NODES.parse(
        {
            "metadata": {"name": "node-1", "uid": "uid-n", **(metadata or {})},
            "spec": {"providerID": "oxide://00000000-0000-4000-8000-000000000001", **spec},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "172.30.0.5"}],
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": changed}],
            },
        }
    )


BOTH = ["IPv4", "IPv6"]
WISHES: list[tuple[dict[str, str], dict[str, Any], tuple[AddressWish, ...]]] = [
    ({}, {}, (AddressWish("IPv4"),)),
    ({}, {"ipFamilies": ["IPv6"]}, (AddressWish("IPv6"),)),
    (
        {},
        {"ipFamilies": BOTH, "ipFamilyPolicy": "PreferDualStack"},
        (AddressWish("IPv4"), AddressWish("IPv6", is_required=False)),
    ),
    (
        {},
        {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"},
        (AddressWish("IPv6"), AddressWish("IPv4")),
    ),
    ({f"{PREFIX}-version": "v6"}, {"ipFamilies": BOTH}, (AddressWish("IPv6"),)),
    ({f"{PREFIX}-pool": "blue"}, {}, (AddressWish(pool="blue"),)),
    ({f"{PREFIX}-pool": "blue, red"}, {"ipFamilies": BOTH}, (AddressWish(pool="blue"), AddressWish(pool="red"))),
    ({PREFIX: "198.51.100.7"}, {}, (AddressWish("IPv4", "198.51.100.7"),)),
    ({PREFIX: "my-address"}, {}, (AddressWish(None, "my-address"),)),
    ({PREFIX: "FD00:0::1"}, {"ipFamilies": ["IPv6"]}, (AddressWish("IPv6", "fd00::1"),)),
    (
        {PREFIX: "198.51.100.7,2001:db8::1"},
        {"ipFamilies": BOTH},
        (AddressWish("IPv4", "198.51.100.7"), AddressWish("IPv6", "2001:db8::1")),
    ),
    ({}, {"loadBalancerIP": "198.51.100.7"}, (AddressWish("IPv4", "198.51.100.7"),)),
    ({f"{PREFIX}-version": "v4"}, {"loadBalancerIP": "198.51.100.7"}, (AddressWish("IPv4"),)),
    ({PREFIX: ""}, {}, (AddressWish("IPv4"),)),
]


@pytest.mark.parametrize(("annotations", "spec", "wishes"), WISHES)
def test_wishes(annotations: dict[str, str], spec: dict[str, Any], wishes: tuple[AddressWish, ...]) -> None:
    """S18, S19, S21: annotations, the deprecated field and families; addresses in their one spelling."""
    wanted = desired(service(annotations, **spec))

    assert isinstance(wanted, Wanted)
    assert wanted.wishes == wishes


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({PREFIX: "198.51.100.7", f"{PREFIX}-pool": "blue"}, "exclude each other"),
        ({f"{PREFIX}-pool": "blue", f"{PREFIX}-version": "v4"}, "exclude each other"),
        ({f"{PREFIX}-version": "4"}, "it can be v4 or v6"),
        ({f"{PREFIX}-version": "v6"}, "the Service has IPv4 (spec.ipFamilies)"),
        ({PREFIX: "2001:db8::1"}, "is an IPv6 address"),
        ({PREFIX: "a,b"}, "2 floating IPs are named"),
        ({PREFIX: ","}, "0 floating IPs are named"),
        ({f"{PREFIX}-pool": "a,b"}, "names 2 pools"),
        ({f"{PREFIX}-reclaim": "delete"}, "it can be Delete or Retain"),
    ],
)
def test_wishes_that_make_no_sense(annotations: dict[str, str], words: str) -> None:
    """S19: the field, the value and what is possible are named."""
    refusal = desired(service(annotations))

    assert isinstance(refusal, Refusal)
    assert refusal.reason == "InvalidAnnotation"
    assert words in refusal.message


DELETED = {"deletionTimestamp": "2026-09-01T11:00:00Z"}
OURS = {"finalizers": [FINALIZER]}


@pytest.mark.parametrize(
    ("metadata", "spec", "task"),
    [
        ({}, {}, Task.ENSURE),
        ({}, {"loadBalancerClass": "oxide.computer/floating-ip"}, Task.ENSURE),
        ({}, {"loadBalancerClass": "example.com/other"}, Task.NOTHING),
        (OURS, {"loadBalancerClass": "example.com/other"}, Task.NOTHING),
        (OURS | DELETED, {"loadBalancerClass": "example.com/other"}, Task.CLEAN_UP),
        ({}, {"type": "ClusterIP"}, Task.NOTHING),
        (OURS, {"type": "ClusterIP"}, Task.CLEAN_UP),
        (OURS | DELETED, {}, Task.CLEAN_UP),
        (DELETED | {"finalizers": ["example.com/audit"]}, {}, Task.NOTHING),
    ],
)
def test_tasks(metadata: dict[str, Any], spec: dict[str, Any], task: Task) -> None:
    """3.1, S4: which Services are served, given up or left alone."""
    assert task_of(service(metadata=metadata, **spec)) is task


def test_source_ranges_in_the_old_annotation_are_told_not_to_count() -> None:
    """kube-proxy follows the field and nothing else; who has set both knows of it."""
    old = {"service.beta.kubernetes.io/load-balancer-source-ranges": "192.0.2.0/24"}
    (notice,) = notices_of(service(old))

    assert (notice.reason, notice.is_warning) == ("SourceRangesIgnored", True)
    assert "spec.loadBalancerSourceRanges" in notice.message
    assert notices_of(service(old, loadBalancerSourceRanges=["192.0.2.0/24"])) == ()
    assert notices_of(service(loadBalancerSourceRanges=["192.0.2.0/24"])) == ()
    assert notices_of(service({next(iter(old)): " "})) == ()


def test_an_entry_without_a_mode_is_not_what_was_wanted() -> None:
    """V1: nil reads as VIP and is written once, explicitly; after that there is nothing to write."""
    entries = (Entry("198.51.100.7", "Proxy"), Entry("172.30.0.5", "VIP"))
    bare = service().model_copy(update={"status": SERVICES.parse(_shown([{"ip": "198.51.100.7"}])).status})
    same = SERVICES.parse(_shown([{"ip": "198.51.100.7", "ipMode": "Proxy"}, {"ip": "172.30.0.5", "ipMode": "VIP"}]))

    assert entries_of(bare) == (Entry("198.51.100.7", "VIP"),)
    assert ingress_patch(bare, entries) == {
        "loadBalancer": {"ingress": [{"ip": "198.51.100.7", "ipMode": "Proxy"}, {"ip": "172.30.0.5", "ipMode": "VIP"}]}
    }
    assert ingress_patch(same, entries) is None
    assert ingress_patch(same, ()) == {"loadBalancer": {"ingress": None}}


def _shown(ingress: list[dict[str, str]]) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "status": {"loadBalancer": {"ingress": ingress}}}


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True", "", "no", "yes please"])
def test_excluding_values(value: str) -> None:
    """3.5: whatever Go does not read as false excludes."""
    assert is_excluded({"node.kubernetes.io/exclude-from-external-load-balancers": value})


@pytest.mark.parametrize("value", ["0", "f", "F", "FALSE", "false", "False"])
def test_including_values(value: str) -> None:
    """3.5: what Go reads as false includes."""
    assert not is_excluded({"node.kubernetes.io/exclude-from-external-load-balancers": value})


def test_targets() -> None:
    """S12, S13, S17: what Kubernetes says of a Node."""
    well = target_of(node(), frozenset(), NOW)
    assert well is not None
    assert (well.may_take, well.failing, well.closed, well.families) == (True, "", "", frozenset({"IPv4"}))
    assert target_of(node(providerID="aws:///eu/i-1"), frozenset(), NOW) is None

    def look(found: Node) -> tuple[bool, bool, bool]:
        target = target_of(found, frozenset(), NOW)
        assert target is not None
        return target.may_take, bool(target.failing), bool(target.closed)

    assert look(node(ready="Unknown", since=10)) == (False, False, False)
    assert look(node(ready="False", since=NOT_READY_SECONDS + 1)) == (False, True, False)
    assert look(node(taints=[{"key": "ToBeDeletedByClusterAutoscaler"}])) == (False, True, False)
    assert look(node(taints=[{"key": "node.cloudprovider.kubernetes.io/uninitialized"}])) == (False, False, False)
    assert look(node(unschedulable=True)) == (True, False, False)
    assert look(node({"deletionTimestamp": "2026-09-01T11:00:00Z"})) == (False, True, False)
    excluded = {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}
    assert look(node(excluded)) == (True, False, True)


def test_the_end_of_a_grace_is_known() -> None:
    """S13: a pass is due when the next Node has been silent for too long."""
    nodes = [node(), node(ready="Unknown", since=10), node(ready="False", since=25), node(ready="False", since=99)]

    assert grace_left_seconds(nodes, NOW) == pytest.approx(5)
    assert grace_left_seconds(nodes[:1], NOW) is None


def test_host_ports() -> None:
    """V6: host ports and the ports of pods in the host's network; not those on loopback, nor of pods that are over."""

    def pod(phase: str = "Running", **spec: Any) -> Any:
        return PODS.parse(
            {"metadata": {"name": "p"}, "spec": {"nodeName": "node-1", **spec}, "status": {"phase": phase}}
        )

    pods = [
        pod(containers=[{"ports": [{"containerPort": 8080, "hostPort": 80}, {"containerPort": 9000}]}]),
        pod(hostNetwork=True, containers=[{"ports": [{"containerPort": 53, "protocol": "UDP"}]}]),
        pod(containers=[{"ports": [{"containerPort": 1, "hostPort": 81, "hostIP": "127.0.0.1"}]}]),
        pod("Succeeded", containers=[{"ports": [{"containerPort": 1, "hostPort": 82}]}]),
        pod(containers=[], initContainers=[{"ports": [{"containerPort": 1, "hostPort": 83}]}]),
        pod(
            containers=[],
            initContainers=[{"restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 84}]}],
        ),
    ]

    assert host_ports(pods) == {"node-1": frozenset({Port("TCP", 80), Port("UDP", 53), Port("TCP", 84)})}


@pytest.mark.parametrize(
    ("text", "mode"),
    [("mode: ipvs", "ipvs"), ("mode: IPVS", "ipvs"), ('mode: ""', ""), ("a: [", ""), ("- 1", ""), ("", "")],
)
def test_proxy_modes(text: str, mode: str) -> None:
    """V3: what can be read of kube-proxy's configuration, and nothing where it cannot."""
    assert mode_of({"config.conf": text}) == mode
    assert mode_of({}) == ""
