"""The addresses of Nodes: which, in which order, and what a kubelet's own choice does to them (N5 to N9, 1.5)."""

from __future__ import annotations

from ipaddress import ip_address
from uuid import UUID

import pytest

from capox.ccm.address_plan import (
    OXIDE_CCM_DESCRIPTION,
    NodeIPError,
    cloud_addresses,
    honour_node_ips,
    node_addresses,
    parse_node_ips,
)
from capox.kube.core_objects import NodeAddress
from capox.ownership import OwnerMark, format_mark
from capox.oxide.snapshots import ObservedFloatingIp
from tests.unit.ccm.nodes import interface, pairs, uuid_of


def addresses_of(*words: str) -> list[NodeAddress]:
    """Addresses from words such as `in:10.0.0.1`, `ex:198.51.100.1`, `host:node`."""
    types = {"in": "InternalIP", "ex": "ExternalIP", "host": "Hostname"}
    return [NodeAddress(type=types[word.split(":", 1)[0]], address=word.split(":", 1)[1]) for word in words]


@pytest.mark.parametrize(
    ("cloud", "wanted", "expected"),
    [
        pytest.param(
            ("in:10.0.0.1", "in:10.0.0.2", "in:10.0.0.3", "ex:198.51.100.1", "host:n"),
            "10.0.0.2",
            ("in:10.0.0.2", "ex:198.51.100.1", "host:n"),
            id="one of several internals",
        ),
        pytest.param(
            ("in:10.0.0.1", "ex:198.51.100.1", "host:n"),
            "198.51.100.1",
            ("ex:198.51.100.1", "in:10.0.0.1", "host:n"),
            id="the external one comes first",
        ),
        pytest.param(
            ("in:fd00::1", "host:n"), "FD00:0:0::0001", ("in:fd00::1", "host:n"), id="IPv6 spelled in another way"
        ),
        pytest.param(
            ("in:fd00::1", "in:10.0.0.1", "host:n"),
            "10.0.0.1,fd00::1",
            ("in:10.0.0.1", "in:fd00::1", "host:n"),
            id="the kubelet's order of families",
        ),
        pytest.param(
            ("in:10.0.0.1", "in:10.0.0.2", "ex:2001:db8::1", "ex:2001:db8::2", "host:n"),
            "10.0.0.2, 2001:db8::2",
            ("in:10.0.0.2", "ex:2001:db8::2", "host:n"),
            id="one internal and one external",
        ),
        pytest.param(
            ("in:10.0.0.1", "ex:10.0.0.1", "in:10.0.0.2", "ex:10.0.0.2", "host:n"),
            "10.0.0.2",
            ("in:10.0.0.2", "ex:10.0.0.2", "host:n"),
            id="one address of two types",
        ),
        pytest.param(("in:10.0.0.1", "host:n"), None, ("in:10.0.0.1", "host:n"), id="no wish"),
        pytest.param(("in:10.0.0.1", "host:n"), "", ("in:10.0.0.1", "host:n"), id="an empty wish"),
    ],
)
def test_a_kubelets_node_ip_is_honoured(cloud: tuple[str, ...], wanted: str | None, expected: tuple[str, ...]) -> None:
    """All vectors of 1.5 that have an answer."""
    found = honour_node_ips(addresses_of(*cloud), parse_node_ips(wanted))

    assert pairs(found) == pairs(addresses_of(*expected))


@pytest.mark.parametrize(
    ("cloud", "wanted"),
    [
        (("in:10.0.0.1", "host:n"), "10.0.0.9"),
        (("in:10.0.0.1", "host:n"), "10.0.0.1,fd00::1"),
        (("in:10.0.0.1", "host:n"), "n"),
        (("in:10.0.0.1", "host:n"), "10.0.0.1,"),
        ((), "10.0.0.1"),
    ],
)
def test_a_node_ip_that_is_not_there_is_an_error(cloud: tuple[str, ...], wanted: str) -> None:
    """1.5: a wish that cannot be met is an error for the whole Node, as of two families on an instance of one."""
    with pytest.raises(NodeIPError):
        honour_node_ips(addresses_of(*cloud), parse_node_ips(wanted))


def floating_ip(number: int, address: str, description: str = "") -> ObservedFloatingIp:
    """A floating IP on the first instance."""
    return ObservedFloatingIp(
        id=UUID(int=number),
        name=f"fip-{number}",
        description=description,
        ip=ip_address(address),
        ip_pool_id=UUID(int=0),
        instance_id=uuid_of(1),
    )


def test_the_order_is_the_instances_alone() -> None:
    """N9: the primary interface first, others by name, IPv4 first unless told otherwise, however they come."""
    interfaces = [
        interface(3, "10.0.3.1", name="zz"),
        interface(2, "10.0.2.1", "fd00:2::1", name="aa"),
        interface(1, "10.0.1.1", "fd00:1::1", primary=True, name="zzz"),
    ]
    expected = ["10.0.1.1", "fd00:1::1", "10.0.2.1", "fd00:2::1", "10.0.3.1"]

    assert [each.address for each in cloud_addresses(interfaces, (), ())] == expected
    assert [each.address for each in cloud_addresses(interfaces[::-1], (), ())] == expected
    six_first = cloud_addresses(interfaces, (), (), ("v6", "v4"))
    assert [each.address for each in six_first] == ["fd00:1::1", "10.0.1.1", "fd00:2::1", "10.0.2.1", "10.0.3.1"]


def test_what_is_moved_about_is_no_address_of_a_node() -> None:
    """N8: ephemeral addresses and people's floating IPs are shown, ours and those of Oxide's own controller are not."""
    mark = OwnerMark(kind="Service", namespace="default", name="web", uid="1")
    floating = [
        floating_ip(1, "198.51.100.9", "by hand"),
        floating_ip(2, "198.51.100.2", format_mark(mark)),
        floating_ip(3, "198.51.100.3", OXIDE_CCM_DESCRIPTION),
        floating_ip(4, "2001:db8::4"),
    ]
    found = cloud_addresses([interface(1, "10.0.0.1", primary=True)], [ip_address("198.51.100.70")], floating)

    assert pairs(found) == [
        ("InternalIP", "10.0.0.1"),
        ("ExternalIP", "198.51.100.70"),
        ("ExternalIP", "198.51.100.9"),
        ("ExternalIP", "2001:db8::4"),
    ]


def test_nothing_is_listed_twice() -> None:
    """1.4: the API refuses one pair of type and address twice."""
    again = [interface(1, "10.0.0.1", primary=True), interface(2, "10.0.0.1")]
    found = cloud_addresses(again, [ip_address("198.51.100.1")], [floating_ip(1, "198.51.100.1")])

    assert pairs(found) == [("InternalIP", "10.0.0.1"), ("ExternalIP", "198.51.100.1")]


def test_the_kubelets_name_is_kept() -> None:
    """1.4: the rack gives no name, so the one that is there stays; other addresses of before do not."""
    cloud = addresses_of("in:10.0.0.1")
    present = addresses_of("in:10.9.9.9", "host:node-1")

    assert pairs(node_addresses(cloud, present, None)) == [("InternalIP", "10.0.0.1"), ("Hostname", "node-1")]
