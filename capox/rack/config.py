"""What a rack consists of, as `rack.yaml` says it.

Only the form is judged here, and that every name that is referred to is there. `furnish` builds the rack from it.
Complaints name the field, its value, what is possible, and never a token.
"""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic

from capox.rack import names
from capox.rack.credentials import TokenSource
from capox.rack.endpoint import Endpoint, parse_endpoint
from capox.rack.records import IpAddress, IpNetwork, IpVersion, Role
from capox.rack.sizes import parse_size
from capox.rack.timing import TimingChoice, as_choice

T = TypeVar("T")


def _name(text: str) -> str:
    complaint = names.name_complaint(text)
    if complaint is not None:
        raise ValueError(complaint)
    return text


def _listen(value: object) -> Endpoint:
    return value if isinstance(value, Endpoint) else parse_endpoint(value)


def _range(value: object) -> object:
    """A range may also be written as one address or as `first-last`."""
    if not isinstance(value, str):
        return value
    first, dash, last = (part.strip() for part in value.partition("-"))
    return {"first": first, "last": last if dash else first}


Name = Annotated[str, pydantic.AfterValidator(_name)]
Description = Annotated[str, pydantic.Field(max_length=512)]
Size = Annotated[int, pydantic.BeforeValidator(parse_size)]
Listen = Annotated[Endpoint, pydantic.BeforeValidator(_listen)]
GuestImage = Annotated[str, pydantic.Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9]")]
Count = Annotated[int, pydantic.Field(ge=1)]


class Section(pydantic.BaseModel):
    """A part of the configuration; what it does not know, it refuses."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Token(TokenSource):
    """A token of a user.

    Attributes:
        expires: from when on it is refused; absent, never.
    """

    expires: pydantic.AwareDatetime | None = None


class SshKey(Section):
    """A public key of a user."""

    name: Name
    description: Description = ""
    public_key: Annotated[str, pydantic.Field(min_length=1, max_length=16_384)]


class User(Section):
    """A user of a silo.

    Attributes:
        name: what the API calls display name.
        role: on all projects of the silo; absent, none.
        fleet_viewer: whether the user sees the whole fleet.
        tokens: what the user logs in with.
        ssh_keys: the user's public keys.
    """

    name: Annotated[str, pydantic.Field(min_length=1, max_length=63)]
    role: Role | None = None
    fleet_viewer: bool = False
    tokens: tuple[Token, ...] = ()
    ssh_keys: tuple[SshKey, ...] = ()


class Quotas(Section):
    """What the instances and disks of a silo may use at most."""

    cpus: Annotated[int, pydantic.Field(ge=0)] = 1000
    memory: Size = 4 * 1024**4
    storage: Size = 100 * 1024**4


class Project(Section):
    """A project; `roles` gives users of the silo, by name, a role in it."""

    name: Name
    description: Description = ""
    roles: dict[str, Role] = {}


class Image(Section):
    """An image of the silo, or of one project.

    Attributes:
        id: a fixed id, so that templates can name it; absent, a random one.
        project: whose it is; absent, the whole silo's.
        os: the operating system's name.
        version: the operating system's version.
        size: of the image; a disk made from it is at least as large.
        block_size: in bytes.
        guest: the container image that a guest boots for it; absent, that of `guests`. Without guests it means nothing.
    """

    id: uuid.UUID | None = None
    name: Name
    description: Description = ""
    project: Name | None = None
    os: Annotated[str, pydantic.Field(min_length=1, max_length=64)]
    version: Annotated[str, pydantic.Field(min_length=1, max_length=64)]
    size: Annotated[Size, pydantic.Field(ge=1)]
    block_size: Literal[512, 2048, 4096] = 512
    guest: GuestImage | None = None


class Silo(Section):
    """A tenant with its users, projects and images."""

    name: Name
    description: Description = ""
    quotas: Quotas = Quotas()
    users: tuple[User, ...] = ()
    projects: tuple[Project, ...] = ()
    images: tuple[Image, ...] = ()

    @pydantic.model_validator(mode="after")
    def _refers_to_what_is_there(self) -> Self:
        _distinct("users", (user.name for user in self.users))
        _distinct("projects", (project.name for project in self.projects))
        _distinct("images", (f"{image.name} of {image.project or 'the silo'}" for image in self.images))
        for user in self.users:
            _distinct(f"users {user.name} ssh_keys", (key.name for key in user.ssh_keys))
        for project in self.projects:
            _known(f"projects {project.name} roles", project.roles, [user.name for user in self.users])
        wanted = [image.project for image in self.images if image.project is not None]
        _known("images project", wanted, [project.name for project in self.projects])
        return self


class Link(Section):
    """A silo that may use a pool."""

    silo: Name
    default: bool = False


class Range(Section):
    """Addresses from first to last, both included."""

    first: IpAddress
    last: IpAddress

    @pydantic.model_validator(mode="after")
    def _ascends(self) -> Self:
        if self.first.version != self.last.version or int(self.first) > int(self.last):
            raise ValueError(f"{self.first} to {self.last} is no range; first and last are of one family and ascend")
        return self


class IpPool(Section):
    """A pool of external addresses, of one family."""

    name: Name
    description: Description = ""
    family: IpVersion = "v4"
    type: Literal["unicast", "multicast"] = "unicast"
    ranges: tuple[Annotated[Range, pydantic.BeforeValidator(_range)], ...]
    silos: tuple[Link, ...] = ()

    @pydantic.model_validator(mode="after")
    def _is_of_one_family(self) -> Self:
        for part in self.ranges:
            if f"v{part.first.version}" != self.family:
                raise ValueError(f"ranges: {part.first} is not of the pool's family {self.family}")
            if part.first.is_multicast != (self.type == "multicast"):
                raise ValueError(f"ranges: {part.first} does not fit a pool of type {self.type}")
        return self


class SubnetPool(Section):
    """A pool of routable prefixes, of one family."""

    name: Name
    description: Description = ""
    family: IpVersion = "v4"
    networks: tuple[IpNetwork, ...]
    silos: tuple[Link, ...] = ()

    @pydantic.model_validator(mode="after")
    def _is_of_one_family(self) -> Self:
        for network in self.networks:
            if f"v{network.version}" != self.family:
                raise ValueError(f"networks: {network} is not of the pool's family {self.family}")
        return self


class Sleds(Section):
    """Sleds of one kind.

    Attributes:
        name: of the sled, or of all when there are several; these get a number behind it, from 0.
        count: how many.
        cpus: virtual CPUs that one carries.
        memory: that one can give to instances.
        platform: the CPU platform, as an instance may ask for it.
    """

    name: Name = "sled"
    count: Annotated[int, pydantic.Field(ge=1, le=1000)] = 1
    cpus: Annotated[int, pydantic.Field(ge=1, le=65_535)] = 128
    memory: Size = 1024**4
    platform: Annotated[str, pydantic.Field(pattern=r"^[a-z0-9_]{1,32}$")] = "amd_milan"

    def names(self) -> list[str]:
        """The names of the sleds."""
        return [self.name] if self.count == 1 else [f"{self.name}{number}" for number in range(self.count)]


class Tls(Section):
    """HTTPS, beside HTTP or instead of it.

    Attributes:
        listen: where.
        certificate: a PEM file with the certificate and its chain.
        key: a PEM file with its private key.
        self_signed: make a certificate for loopback and the address, good for one run of the rack.
    """

    listen: Listen
    certificate: Path | None = None
    key: Path | None = None
    self_signed: bool = False

    @pydantic.model_validator(mode="after")
    def _has_one_certificate(self) -> Self:
        if (self.certificate is None) != (self.key is None) or self.self_signed != (self.certificate is None):
            raise ValueError("give either certificate and key, or self_signed: true")
        return self


class Control(TokenSource):
    """The control endpoint, with the token that it asks for."""

    listen: Listen


class Guests(Section):
    """What runs inside the instances.

    Attributes:
        backend: `none`, nothing; `docker`, a container of this computer's Docker each.
        name: distinguishes what this rack has in Docker from what other racks have.
        image: the container image that a guest boots when the image of its boot disk names none.
        uplink: a network of four or more addresses, between this computer and the rack's networks.
    """

    backend: Literal["none", "docker"] = "none"
    name: Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]{1,9}$")] = "rack"
    image: GuestImage | None = None
    uplink: ipaddress.IPv4Network = ipaddress.IPv4Network("100.64.217.0/30")

    @pydantic.field_validator("uplink")
    @classmethod
    def _has_two_addresses(cls, network: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
        if network.prefixlen > 30:
            raise ValueError("a network with two addresses for hosts is needed, such as 100.64.217.0/30")
        return network


class Config(Section):
    """A rack.

    Attributes:
        listen: where it answers over HTTP; null, nowhere.
        tls: where it answers over HTTPS; absent, nowhere.
        control: where it is commanded; absent, nowhere.
        mode: `auto`, time passes by itself; `commanded`, only on command.
        start_time: the wall clock at the beginning; absent, now.
        seed: of ids, prefixes and MAC addresses; absent, every run differs.
        api_version: the newest version of the API that it admits to speak; absent, that of its document.
        timing: how long things take.
        silos: its tenants.
        ip_pools: its pools of external addresses.
        subnet_pools: its pools of external subnets.
        sleds: what instances run on.
        storage: room for distributed disks and snapshots, whatever the quotas say; absent, no limit.
        largest_physical_disk: of a sled, which no local disk can exceed; absent, no limit.
        guests: what runs inside the instances.
    """

    listen: Listen | None = Endpoint("127.0.0.1", 12220)
    tls: Tls | None = None
    control: Control | None = None
    mode: Literal["auto", "commanded"] = "auto"
    start_time: pydantic.AwareDatetime | None = None
    seed: int | None = None
    api_version: Annotated[str, pydantic.Field(pattern=r"^[0-9]{10}\.[0-9]{1,9}\.[0-9]{1,9}$")] | None = None
    timing: Annotated[TimingChoice, pydantic.BeforeValidator(as_choice)] = TimingChoice()
    silos: tuple[Silo, ...]
    ip_pools: tuple[IpPool, ...] = ()
    subnet_pools: tuple[SubnetPool, ...] = ()
    sleds: tuple[Sleds, ...] = (Sleds(count=4),)
    storage: Size | None = None
    largest_physical_disk: Size | None = None
    guests: Guests = Guests()

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.listen is None and self.tls is None:
            raise ValueError("listen and tls: at least one is needed, or nobody can reach the rack")
        if self.guests.backend != "none" and self.mode == "commanded":
            raise ValueError("guests need time of their own; mode commanded goes with guests none only")
        silos = [silo.name for silo in self.silos]
        if not silos:
            raise ValueError("silos: at least one is needed")
        _distinct("silos", silos)
        _distinct("ip_pools", (pool.name for pool in self.ip_pools))
        _distinct("subnet_pools", (pool.name for pool in self.subnet_pools))
        _distinct("sleds", itertools.chain.from_iterable(sleds.names() for sleds in self.sleds))
        images = (image for silo in self.silos for image in silo.images)
        _distinct("images id", (str(image.id) for image in images if image.id is not None))
        pools: list[IpPool | SubnetPool] = [*self.ip_pools, *self.subnet_pools]
        for pool in pools:
            _known(f"pool {pool.name} silos", (link.silo for link in pool.silos), silos)
            _distinct(f"pool {pool.name} silos", (link.silo for link in pool.silos))
        _one_default(self.ip_pools, lambda pool: f"{pool.type} {pool.family}")
        _one_default(self.subnet_pools, lambda pool: pool.family)
        ranges = ((part.first, part.last, pool.name) for pool in self.ip_pools for part in pool.ranges)
        _disjoint("pools", "ranges", ranges)
        networks = ((net[0], net[-1], pool.name) for pool in self.subnet_pools for net in pool.networks)
        _disjoint("subnet pools", "networks", networks)
        return self

    def located(self, directory: Path) -> Self:
        """The same configuration with its files' paths taken relative to a directory."""
        silos = tuple(
            silo.model_copy(
                update={
                    "users": tuple(
                        user.model_copy(update={"tokens": tuple(token.located(directory) for token in user.tokens)})
                        for user in silo.users
                    )
                }
            )
            for silo in self.silos
        )
        tls = self.tls
        if tls is not None and tls.certificate is not None and tls.key is not None:
            paths = {"certificate": directory / tls.certificate, "key": directory / tls.key}
            tls = tls.model_copy(update=paths)
        control = self.control.located(directory) if self.control is not None else None
        return self.model_copy(update={"silos": silos, "tls": tls, "control": control})

    def token_sources(self) -> Iterator[tuple[Silo, User, Token]]:
        """Every user's tokens."""
        for silo in self.silos:
            for user in silo.users:
                for token in user.tokens:
                    yield silo, user, token


def _distinct(field: str, given: Iterable[str]) -> None:
    for name, times in Counter(given).items():
        if times > 1:
            raise ValueError(f"{field}: {name} is there {times} times; names differ")


def _known(field: str, given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{field}: {name} is not defined; defined are: {', '.join(known) or 'none at all'}")


def _one_default(pools: Iterable[Any], kind: Callable[[Any], str]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for pool in pools:
        for link in pool.silos:
            if link.default and (other := seen.setdefault((link.silo, kind(pool)), pool.name)) != pool.name:
                raise ValueError(
                    f"pools {other} and {pool.name} are both the default of silo {link.silo} for {kind(pool)}; "
                    "at most one may be"
                )


def _disjoint(kind: str, part: str, spans: Iterable[tuple[IpAddress, IpAddress, str]]) -> None:
    """Refuse that two spans of addresses, each of a pool, have one in common."""
    ordered = sorted(spans, key=lambda span: (span[0].version, int(span[0])))
    for (start, last, name), (first, _, other) in itertools.pairwise(ordered):
        if start.version == first.version and int(first) <= int(last):
            raise ValueError(f"{kind} {name} and {other} both hold {first}; {part} do not overlap")


def start_of(config: Config) -> datetime.datetime:
    """The wall clock at the beginning."""
    return config.start_time or datetime.datetime.now(datetime.UTC)
