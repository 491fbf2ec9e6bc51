"""From a configuration to a rack that holds what it says."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from typing import Any

from capox.rack import access, config, credentials, document, records
from capox.rack.clock import Clock, CommandedClock, PassingClock
from capox.rack.operations import projects
from capox.rack.state import Rack

_NO_VARIABLES: Mapping[str, str] = {}


def clock_of(chosen: config.Config) -> Clock:
    """The clock that a configuration asks for."""
    start = config.start_of(chosen)
    return CommandedClock(start) if chosen.mode == "commanded" else PassingClock(start=start)


def randomness_of(chosen: config.Config) -> random.Random:
    """The randomness that a configuration asks for. Nothing secret comes from it."""
    return random.Random(chosen.seed)  # noqa: S311 -- ids and addresses that are to repeat, no secrets


def build_rack(
    chosen: config.Config,
    clock: Clock,
    randomness: random.Random,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Rack:
    """A rack that holds what the configuration says.

    Args:
        chosen: the configuration.
        clock: the rack's time.
        randomness: where its ids come from.
        variables: the environment, for tokens that come from there.

    Raises:
        CredentialError: a token cannot be had, or two users have the same one.
    """
    rack = Rack(document=document.load(), clock=clock, randomness=randomness, timing=chosen.timing.timing())
    if chosen.api_version is not None:
        rack.latest_version = chosen.api_version
    rack.storage_capacity_bytes = chosen.storage
    rack.physical_disk_bytes = chosen.largest_physical_disk
    silos = {silo.name: _add_silo(rack, silo, variables) for silo in chosen.silos}
    for pool in chosen.ip_pools:
        _add_ip_pool(rack, pool, silos)
    for subnet_pool in chosen.subnet_pools:
        rack.subnet_pools.insert(
            records.SubnetPool(
                **rack.identity(subnet_pool.name, subnet_pool.description),
                version=subnet_pool.family,
                networks=list(subnet_pool.networks),
                links=_links(subnet_pool.silos, silos),
            )
        )
    for sleds in chosen.sleds:
        _add_sleds(rack, sleds)
    # After the pools, because a new VPC's gateway is attached to them.
    for silo in chosen.silos:
        _add_projects(rack, silo, silos[silo.name], chosen.guests.image)
    return rack


def _add_silo(rack: Rack, silo: config.Silo, variables: Mapping[str, str]) -> records.Silo:
    record = rack.silos.insert(
        records.Silo(
            **rack.identity(silo.name, silo.description),
            quota_cpus=silo.quotas.cpus,
            quota_memory_bytes=silo.quotas.memory,
            quota_storage_bytes=silo.quotas.storage,
        )
    )
    for user in silo.users:
        _add_user(rack, record, user, variables)
    return record


def _add_user(rack: Rack, silo: records.Silo, user: config.User, variables: Mapping[str, str]) -> None:
    record = rack.users.insert(
        records.User(**rack.identity(user.name, ""), silo=silo.id, role=user.role, fleet_viewer=user.fleet_viewer)
    )
    for token in user.tokens:
        digest = access.hash_token(credentials.read_token(token, variables))
        if digest in rack.tokens:
            raise credentials.CredentialError(
                f"silo {silo.name}, user {user.name}, {token}: another user has the same token; tokens differ"
            )
        rack.tokens[digest] = records.Token(
            id=rack.new_id(),
            user=record.id,
            sha256=digest,
            time_created=rack.now(),
            time_expires=token.expires.astimezone(datetime.UTC) if token.expires is not None else None,
        )
    for key in user.ssh_keys:
        rack.ssh_keys.insert(
            records.SshKey(**rack.identity(key.name, key.description), user=record.id, public_key=key.public_key)
        )


def _add_projects(rack: Rack, silo: config.Silo, record: records.Silo, default_guest: str | None) -> None:
    made: dict[str, records.Project] = {}
    for project in silo.projects:
        made[project.name] = projects.add_project(rack, record, project.name, project.description)
        for name, role in project.roles.items():
            user = rack.users.by_name(record.id, name)
            assert user is not None, "the configuration's check lets only known users through"
            made[project.name].roles[user.id] = role
    for image in silo.images:
        identity: dict[str, Any] = rack.identity(image.name, image.description)
        if image.id is not None:
            identity["id"] = str(image.id)
        rack.images.insert(
            records.Image(
                **identity,
                silo=record.id,
                project=made[image.project].id if image.project is not None else None,
                os=image.os,
                version=image.version,
                size_bytes=image.size,
                block_size_bytes=image.block_size,
                guest=image.guest or default_guest,
            )
        )


def _add_ip_pool(rack: Rack, pool: config.IpPool, silos: Mapping[str, records.Silo]) -> None:
    rack.add_ip_pool(
        records.IpPool(
            **rack.identity(pool.name, pool.description),
            version=pool.family,
            pool_type=pool.type,
            ranges=[(part.first, part.last) for part in pool.ranges],
            links=_links(pool.silos, silos),
        )
    )


def _add_sleds(rack: Rack, sleds: config.Sleds) -> None:
    for name in sleds.names():
        sled = records.Sled(
            id=rack.new_id(),
            name=name,
            cpus=sleds.cpus,
            memory_bytes=sleds.memory,
            cpu_platform=sleds.platform,
        )
        rack.sleds[sled.id] = sled


def _links(links: tuple[config.Link, ...], silos: Mapping[str, records.Silo]) -> dict[str, bool]:
    return {silos[link.silo].id: link.default for link in links}
