"""The wire models: lenient in reading, exact in writing, silent about secrets."""

from __future__ import annotations

import base64
import json
import pickle
from ipaddress import ip_address
from typing import Any

import pytest
from pydantic import SecretBytes, TypeAdapter, ValidationError

from capox.oxide import models
from tests.unit.oxide import examples

USER_DATA = b"#cloud-config\n# a very secret join token\n"


def _create(**changes: Any) -> models.InstanceCreate:
    fields: dict[str, Any] = {
        "name": "machine-1",
        "description": "",
        "hostname": "machine-1",
        "ncpus": 4,
        "memory": 8 * 2**30,
        "network_interfaces": models.DefaultInterface(type="default_ipv4"),
        "ssh_public_keys": (),
        "user_data": SecretBytes(USER_DATA),
        **changes,
    }
    return models.InstanceCreate(**fields)


def _wire(model: models.WriteModel) -> Any:
    return json.loads(model.wire_bytes())


def test_user_data_travels_and_shows_nowhere_else() -> None:
    """The wire has it in Base64; no text form and no other dump of the model has it in any form."""
    create = _create()
    encoded = base64.b64encode(USER_DATA).decode()

    assert _wire(create)["user_data"] == encoded
    shown = [
        repr(create),
        str(create),
        repr([create]),
        f"{create}",
        create.model_dump_json(),
        repr(create.model_dump()),
        repr(create.model_dump(mode="json")),
    ]
    for text in shown:
        assert encoded not in text
        assert "secret join token" not in text


def test_user_data_is_not_in_the_error_about_it() -> None:
    """User data that is too long is refused with the limit, not with the data."""
    with pytest.raises(ValidationError, match="32769 bytes, at most 32768") as caught:
        _create(user_data=b"K" * 32769)

    assert "KKKK" not in str(caught.value)


def test_user_data_fills_its_limit() -> None:
    """32 KiB before Base64 are accepted, to the byte."""
    assert len(base64.b64decode(_wire(_create(user_data=b"\x00\xff" * 16384))["user_data"])) == 32768


def test_no_ssh_keys_and_all_ssh_keys_are_said_apart() -> None:
    """None means all keys of the token's owner, so it is never a default."""
    assert _wire(_create(ssh_public_keys=()))["ssh_public_keys"] == []
    assert _wire(_create(ssh_public_keys=None))["ssh_public_keys"] is None
    with pytest.raises(ValidationError, match="ssh_public_keys"):
        models.InstanceCreate(  # type: ignore[call-arg]  # that it is missing is what the test is about
            name="machine-1",
            description="",
            hostname="machine-1",
            ncpus=4,
            memory=2**30,
            network_interfaces=models.NoInterface(),
        )


@pytest.mark.parametrize("run_state", list(models.InstanceState))
def test_every_run_state_is_read(run_state: models.InstanceState) -> None:
    """A state of the specification is the member of the enumeration."""
    instance = models.Instance.model_validate_json(json.dumps(examples.instance(run_state=str(run_state))))

    assert isinstance(instance.run_state, models.InstanceState)
    assert instance.run_state is run_state


def test_an_unknown_run_state_stays_its_word() -> None:
    """A state that a newer rack may have does not keep us from reading the rest, and is not taken for a known one."""
    instance = models.Instance.model_validate(examples.instance(run_state="hibernating", something_new={"a": 1}))

    assert instance.run_state == "hibernating"
    assert instance.run_state not in set(models.InstanceState)


@pytest.mark.parametrize("field", ["id", "run_state", "name", "memory", "time_created"])
def test_a_documented_field_that_is_missing_is_an_error(field: str) -> None:
    """Leniency ends where the specification begins."""
    answer = examples.instance()
    del answer[field]

    with pytest.raises(ValidationError, match=field):
        models.Instance.model_validate(answer)


def test_an_update_that_changes_nothing_repeats_what_was_read() -> None:
    """Every field is sent, unknown words and nulls included."""
    instance = models.Instance.model_validate(examples.instance(cpu_platform="amd_newer", auto_restart_policy="never"))

    assert _wire(instance.as_update()) == {
        "ncpus": 4,
        "memory": 8 * 2**30,
        "boot_disk": "00000000-0000-4000-9000-000000000001",
        "auto_restart_policy": "never",
        "cpu_platform": "amd_newer",
        "enable_jumbo_frames": False,
    }


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "1a",
        "-a",
        "a-",
        "a.b",
        "a_b",
        "ä",
        "a" * 64,
        "machine 1",
        "a\n",
        "550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_a_name_that_the_rack_cannot_parse_is_refused(name: str) -> None:
    """The rack would answer with a parse error without a code; here the field is named."""
    with pytest.raises(ValidationError, match="name"):
        _create(name=name)


def test_what_the_rack_would_answer_with_a_500_is_refused() -> None:
    """Two columns of its database are narrower than its specification."""
    with pytest.raises(ValidationError, match="description"):
        _create(description="d" * 513)
    with pytest.raises(ValidationError, match="hostname"):
        _create(hostname="h" * 64)


def test_a_misspelt_field_of_a_request_is_refused() -> None:
    """The rack ignores unknown fields, so a wrong one would silently do nothing."""
    with pytest.raises(ValidationError, match="sshPublicKeys"):
        _create(sshPublicKeys=())


def test_a_reference_that_parses_as_an_id_is_one() -> None:
    """Also without hyphens, as for the rack."""
    assert _wire(models.DiskPath.model_validate({"disk": "550E8400E29B41D4A716446655440000"})) == {
        "disk": "550e8400-e29b-41d4-a716-446655440000"
    }
    assert _wire(models.DiskPath(disk="data-1")) == {"disk": "data-1"}


def test_transit_addresses_cannot_be_forgotten() -> None:
    """Leaving them out of an update would clear them on the rack."""
    with pytest.raises(ValidationError, match="transit_ips"):
        models.InstanceNetworkInterfaceUpdate(primary=True)  # type: ignore[call-arg]  # see above


@pytest.mark.parametrize("network", ["10.0.0.0", "10.0.0.0/33", "example", "fd00::/129", "/8", ""])
def test_what_is_no_network_is_refused(network: str) -> None:
    """A transit address needs its prefix length."""
    with pytest.raises(ValidationError, match="transit_ips"):
        models.InstanceNetworkInterfaceUpdate(transit_ips=(network,))


@pytest.mark.parametrize(
    ("stack", "addresses"),
    [
        ({"type": "v4", "value": {"ip": "172.30.0.5", "transit_ips": []}}, ["172.30.0.5"]),
        ({"type": "v6", "value": {"ip": "fd00::5", "transit_ips": ["fd01::/64"]}}, ["fd00::5"]),
        (
            {
                "type": "dual_stack",
                "value": {
                    "v4": {"ip": "172.30.0.5", "transit_ips": []},
                    "v6": {"ip": "fd00::5", "transit_ips": []},
                },
            },
            ["172.30.0.5", "fd00::5"],
        ),
        ({"type": "v8", "value": {"ip": "r"}}, []),
    ],
)
def test_the_addresses_of_an_interface(stack: dict[str, Any], addresses: list[str]) -> None:
    """IPv4 comes first, and a stack of an unknown kind has no addresses that one could use."""
    interface = models.InstanceNetworkInterface.model_validate(examples.network_interface(ip_stack=stack))

    assert interface.addresses == tuple(ip_address(address) for address in addresses)


def test_an_external_address_of_an_unknown_kind_does_not_hide_the_others() -> None:
    """One new kind in the list must not make the whole list unreadable."""
    pool = "00000000-0000-4000-b000-000000000001"
    page = models.ResultsPage[models.ExternalIp].model_validate(
        {
            "items": [
                {"kind": "snat", "ip": "198.51.100.1", "ip_pool_id": pool, "first_port": 0, "last_port": 16383},
                {"kind": "anycast", "where": ["everywhere"]},
                {"kind": "ephemeral", "ip": "198.51.100.2", "ip_pool_id": pool},
                {"kind": "floating", **examples.floating_ip(3)},
            ]
        }
    )

    assert [type(each) for each in page.items] == [
        models.SnatIp,
        models.Unrecognized,
        models.EphemeralIp,
        models.AttachedFloatingIp,
    ]


@pytest.mark.parametrize("answer", [{"kind": "snat"}, {"kind": 5}, {}, [], "floating", None])
def test_a_known_kind_in_a_wrong_form_is_an_error(answer: object) -> None:
    """Unknown is what has a tag that we do not know, not what is broken."""
    with pytest.raises(ValidationError):
        TypeAdapter(models.ExternalIp).validate_python(answer)


@pytest.mark.parametrize("state", ["attaching", "attached", "detaching"])
def test_an_attached_disk_names_its_instance(state: str) -> None:
    """Whoever is attached says to whom; everything else need not."""
    with pytest.raises(ValidationError, match="must name its instance"):
        models.Disk.model_validate(examples.disk(state={"state": state}))

    attached = models.Disk.model_validate(examples.disk(state={"state": state, "instance": examples.instance_id(1)}))

    assert str(attached.state.instance) == examples.instance_id(1)
    assert models.Disk.model_validate(examples.disk(state={"state": "frozen"})).state.state == "frozen"


def test_a_firewall_rule_is_written_back_with_all_that_was_in_it() -> None:
    """Replacing the list for the sake of one rule loses nothing of the others, known to this client or not."""
    parts: dict[str, Any] = {
        "description": "d" * 600,
        "targets": [
            {"type": "vpc", "value": "default"},
            {"type": "ip_net", "value": "10.0.0.1/8"},
            {"type": "tag", "value": {"key": "role", "is": ["web"]}},
        ],
        "filters": {
            "hosts": [{"type": "ip", "value": "2001:DB8::1"}, {"type": "region", "value": 5}],
            "ports": ["22", "30000-32767"],
            "protocols": [
                {"type": "tcp"},
                {"type": "icmp", "value": None},
                {"type": "icmp6", "value": {"icmp_type": 128, "code": "0-3", "note": "new"}},
                {"type": "sctp", "chunks": 7},
            ],
            "countries": ["ch"],
        },
        "action": "log",
        "priority": 7,
        "status": "shadow",
        "direction": "inbound",
        "name": "theirs",
        "labels": {"new": True},
    }
    read = models.VpcFirewallRules.model_validate({"rules": [examples.firewall_rule(**parts)]})

    written = models.VpcFirewallRulesUpdate(rules=tuple(rule.as_update() for rule in read.rules))

    assert _wire(written) == {"rules": [parts]}


def test_the_list_of_rules_is_never_empty_by_default() -> None:
    """An empty list removes every rule of the VPC, so it must be said."""
    with pytest.raises(ValidationError, match="rules"):
        models.VpcFirewallRulesUpdate()  # type: ignore[call-arg]  # see above


def test_models_do_not_change() -> None:
    """What was read or will be written cannot be altered under somebody's hands."""
    instance = models.Instance.model_validate(examples.instance())

    with pytest.raises(ValidationError, match="frozen"):
        instance.ncpus = 8


def test_a_pickled_request_is_still_the_same() -> None:
    """A copy of a model sends what the model sends."""
    create = _create()

    assert pickle.loads(pickle.dumps(create)).wire_bytes() == create.wire_bytes()  # noqa: S301
