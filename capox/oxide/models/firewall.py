"""A VPC's firewall rules (semantics 2.4, 7.2).

The rack knows no single rule: an update replaces the whole list. Whoever changes one rule therefore writes
everybody's rules, so nothing of what was read may be lost: words, variants and fields that this client does not know
are kept and written back.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, Tag

from capox.oxide.models.wire import (
    UNRECOGNIZED,
    Description,
    Name,
    Open,
    ReadModel,
    Time,
    Unrecognized,
    WriteModel,
    tag_of,
)

RULES_LIMIT: Final = 1024
"""Rules in a VPC."""

FILTER_LIMIT: Final = 256
"""Targets of a rule, and entries of each kind of filter."""

Priority = Annotated[int, Field(ge=0, le=2**16 - 1)]
"""The lower number wins; the rules that a VPC is born with have 65534."""

PortRange = Annotated[str, Field(pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$")]
"""A port or a range such as `30000-32767`."""


class FirewallAction(StrEnum):
    """What happens to a packet that matches."""

    ALLOW = "allow"
    DENY = "deny"


class FirewallDirection(StrEnum):
    """Which packets a rule is about, seen from its targets."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


class FirewallStatus(StrEnum):
    """Whether a rule is in force."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class RulePart(WriteModel):
    """A part of a rule, the same in both directions; fields that this client does not know stay in it."""

    model_config = ConfigDict(extra="allow")


class FirewallSubject(RulePart):
    """Whom a rule protects (a target), or whose packets it is about (a host filter).

    Attributes:
        type: What `value` is.
        value: The *name* of the VPC, subnet or instance; or an address; or a network. A name that nobody bears is
            accepted by the rack and matches nothing.
    """

    type: Literal["vpc", "subnet", "instance", "ip", "ip_net"]
    value: str


class TcpOrUdp(RulePart):
    """All of TCP, or all of UDP; ports are a filter of their own."""

    type: Literal["tcp", "udp"]


class IcmpFilter(RulePart):
    """One type of ICMP message.

    Attributes:
        code: A code or a range of codes such as `0-3`; None for all.
    """

    icmp_type: Annotated[int, Field(ge=0, le=2**8 - 1)]
    code: Annotated[str, Field(pattern=r"^[0-9]{1,3}(-[0-9]{1,3})?$")] | None = None


class Icmp(RulePart):
    """ICMP of IPv4 (`icmp`) or of IPv6 (`icmp6`).

    Attributes:
        value: None for every type of message.
    """

    type: Literal["icmp", "icmp6"]
    value: IcmpFilter | None = None


Subject = Annotated[
    Annotated[FirewallSubject, Tag("vpc")]
    | Annotated[FirewallSubject, Tag("subnet")]
    | Annotated[FirewallSubject, Tag("instance")]
    | Annotated[FirewallSubject, Tag("ip")]
    | Annotated[FirewallSubject, Tag("ip_net")]
    | Annotated[Unrecognized, Tag(UNRECOGNIZED)],
    tag_of("type", "vpc", "subnet", "instance", "ip", "ip_net"),
]
"""A target or a host filter, of a known kind or not."""

Protocol = Annotated[
    Annotated[TcpOrUdp, Tag("tcp")]
    | Annotated[TcpOrUdp, Tag("udp")]
    | Annotated[Icmp, Tag("icmp")]
    | Annotated[Icmp, Tag("icmp6")]
    | Annotated[Unrecognized, Tag(UNRECOGNIZED)],
    tag_of("type", "tcp", "udp", "icmp", "icmp6"),
]
"""A protocol filter, of a known kind or not."""


class FirewallFilters(RulePart):
    """Which packets a rule is about; None is no restriction, so all of them None is every packet."""

    hosts: Annotated[tuple[Subject, ...], Field(max_length=FILTER_LIMIT)] | None = None
    ports: Annotated[tuple[PortRange, ...], Field(max_length=FILTER_LIMIT)] | None = None
    protocols: Annotated[tuple[Protocol, ...], Field(max_length=FILTER_LIMIT)] | None = None


class VpcFirewallRuleUpdate(RulePart):
    """One rule of the list that vpc_firewall_rules_update writes. Names are unique within the list."""

    name: Name
    description: Description
    status: Open[FirewallStatus]
    direction: Open[FirewallDirection]
    targets: Annotated[tuple[Subject, ...], Field(max_length=FILTER_LIMIT)]
    filters: FirewallFilters
    action: Open[FirewallAction]
    priority: Priority


class VpcFirewallRule(ReadModel):
    """One rule as the rack shows it.

    Attributes:
        id: Of this writing of the rule only: every update of the list gives all rules new ids.
    """

    model_config = ConfigDict(extra="allow")

    id: UUID
    name: str
    description: str
    time_created: Time
    time_modified: Time
    vpc_id: UUID
    status: Open[FirewallStatus]
    direction: Open[FirewallDirection]
    targets: tuple[Subject, ...]
    filters: FirewallFilters
    action: Open[FirewallAction]
    priority: int

    def as_update(self) -> VpcFirewallRuleUpdate:
        """Give the same rule in the form in which it is written, unknown fields and variants included."""
        known = {field: getattr(self, field) for field in VpcFirewallRuleUpdate.model_fields}
        # Not validated again: what the rack has it must also take back, whatever our own limits say.
        return VpcFirewallRuleUpdate.model_construct(**known, **(self.model_extra or {}))


class VpcFirewallRules(ReadModel):
    """The answer of vpc_firewall_rules_view and vpc_firewall_rules_update: all rules of the VPC, sorted by name."""

    rules: tuple[VpcFirewallRule, ...]


class VpcFirewallRulesUpdate(WriteModel):
    """The body of vpc_firewall_rules_update: the whole new list. There is no etag, the last writer wins.

    Attributes:
        rules: No default on purpose: an empty list removes every rule of the VPC, its first three included.
    """

    rules: Annotated[tuple[VpcFirewallRuleUpdate, ...], Field(max_length=RULES_LIMIT)]
