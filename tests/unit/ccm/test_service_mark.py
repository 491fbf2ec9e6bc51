"""Marks and names of Services' floating IPs (CCM rules V9, V10; weak points 1 and 2)."""

from __future__ import annotations

import datetime
import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from capox.ccm.placement import Port
from capox.ccm.service_mark import (
    GoNames,
    is_of_service,
    marked_ports,
    names_for,
    retained_description,
    service_description,
)
from capox.ccm.wanted import Owner
from capox.ownership import parse_mark

CLUSTER_ID = "5f0c6a52-7f0e-4f0e-8a3e-2f6f3f0b9d77"
UID = "0c9f6d8e-3a2b-4f57-9a53-0d8d2b6f9e11"
MADE = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)
WEB = Owner("team-a", "web", UID, MADE)
LABELS = st.from_regex(re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII), fullmatch=True)
PORTS = st.frozensets(st.builds(Port, st.sampled_from(["TCP", "UDP"]), st.integers(1, 65535)), min_size=1, max_size=100)


def test_the_text_of_a_mark() -> None:
    """The provider's firewall reads `ports`, its deletion of a cluster reads `reclaim`: the text does not change."""
    ports = [Port("UDP", 53), Port("TCP", 443), Port("TCP", 80)]

    description, is_whole = service_description(WEB, CLUSTER_ID, ports, is_retained=True)

    assert is_whole
    assert description == (
        f"Managed by capox: kind=Service object=team-a/web uid={UID} cluster={CLUSTER_ID} "
        "reclaim=retain ports=tcp:80,tcp:443,udp:53"
    )


@given(LABELS, LABELS, PORTS, st.booleans())
def test_marks_fit_and_are_read_back(namespace: str, name: str, ports: frozenset[Port], is_retained: bool) -> None:
    """At most 512 characters; a list that does not fit ends in `...` and is then not taken for the whole one."""
    owner = Owner(namespace, name, UID, MADE)

    description, is_whole = service_description(owner, CLUSTER_ID, ports, is_retained=is_retained)

    mark = parse_mark(description)
    assert mark is not None
    assert len(description) <= 512
    assert is_of_service(mark, UID, CLUSTER_ID)
    assert not is_of_service(mark, UID, "another")
    assert marked_ports(mark) == (ports if is_whole else None)
    assert is_whole != mark.further["ports"].endswith(",...")
    assert mark.further.get("reclaim") == ("retain" if is_retained else None)


def test_marks_without_ports_tell_nothing_of_ports() -> None:
    """A mark of somebody who did not list them, or in words of a later version, is not an empty list."""
    for text in ("", " ports=", " ports=sctp:80", " ports=tcp:80,quic:443"):
        mark = parse_mark(f"Managed by capox: kind=Service object=a/b uid=u cluster=c{text}")
        assert mark is not None
        assert marked_ports(mark) is None


@given(LABELS, LABELS)
def test_names_are_names(namespace: str, name: str) -> None:
    """V9: at most 63 characters of [a-z0-9-], a letter first, no hyphen last; each replacement has another."""
    names = list(itertools.islice(names_for(Owner(namespace, name, UID, MADE), CLUSTER_ID), 20))

    assert len(set(names)) == 20
    for each in names:
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", each)


def test_names_that_would_meet_do_not() -> None:
    """Weak point 1: joined with hyphens or cut, these are one name; the hash tells them apart."""
    owners = [
        Owner("team-a", "web-prod", "uid-1", MADE),
        Owner("team", "a-web-prod", "uid-2", MADE),
        Owner("monitoring-and-observability", "kube-prometheus-stack-alertmanager-one", "uid-3", MADE),
        Owner("monitoring-and-observability", "kube-prometheus-stack-alertmanager-two", "uid-4", MADE),
    ]
    names = {next(names_for(owner, CLUSTER_ID)) for owner in owners}

    assert len(names) == 4
    assert next(names_for(WEB, "cluster-1")) != next(names_for(WEB, "cluster-2"))


def test_a_kept_address_bears_no_mark() -> None:
    """It is nobody's, so a later Service, or person, can have it."""
    assert parse_mark(retained_description(WEB)) is None


def test_names_of_oxides_own_controller() -> None:
    """V10: cut at 63, hyphens at the end dropped; exact where the cluster's name is known."""
    long = Owner("monitoring-and-observability", "kube-prometheus-stack-alertmanager", UID, MADE)
    whole = "kubernetes-monitoring-and-observability-kube-prometheus-stack-alertmanager"
    known, unknown = GoNames("kubernetes"), GoNames()

    assert known.is_exactly("kubernetes-team-a-web", WEB)
    assert known.is_exactly(whole[:63].rstrip("-"), long)
    assert not known.is_exactly("other-team-a-web", WEB)
    assert not unknown.is_exactly("kubernetes-team-a-web", WEB)
    assert unknown.may_be("whatever-team-a-web", WEB)
    assert unknown.may_be(whole[:63], long)
    assert not unknown.may_be("kubernetes-team-b-web", WEB)
