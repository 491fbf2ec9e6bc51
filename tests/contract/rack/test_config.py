"""`rack.yaml`: what it makes, what it refuses, and in which words."""

from __future__ import annotations

import dataclasses
import datetime
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from capox.rack import config, config_file, credentials, furnish, records, settings, state, timing
from capox.rack.clock import CommandedClock, PassingClock
from capox.rack.endpoint import Endpoint
from tests.contract.rack.configuring import SMALL, build, complaints, with_user
from tests.rack import GIB, START

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "rack.yaml"
SECRET = "oxide-token-0123456789abcdef"


def test_everything_that_is_configured_is_there() -> None:
    """Silos, users, tokens, keys, projects, roles, images, pools, sleds and limits become the rack's records."""
    identity = "11111111-2222-4333-8444-555555555555"
    rack = build(
        {
            "timing": {"preset": "realistic", "instance_start": 3},
            "api_version": "2026060800.0.0",
            "storage": "1 PiB",
            "largest_physical_disk": "2 TiB",
            "silos": [
                {
                    "name": "lab",
                    "quotas": {"cpus": 10, "memory": "64 GiB", "storage": 1099511627776},
                    "users": [
                        {
                            "name": "ann",
                            "role": "viewer",
                            "fleet_viewer": True,
                            "tokens": [{"token": SECRET, "expires": "2030-01-01T00:00:00+01:00"}, {"token_env": "ANN"}],
                            "ssh_keys": [{"name": "laptop", "public_key": "ssh-ed25519 AAAA"}],
                        }
                    ],
                    "projects": [{"name": "demo", "description": "d", "roles": {"ann": "collaborator"}}],
                    "images": [
                        {"name": "debian", "id": identity, "os": "debian", "version": "13", "size": "1.5 GiB"},
                        {"name": "mine", "project": "demo", "os": "x", "version": "1", "size": 1, "block_size": 4096},
                    ],
                }
            ],
            "ip_pools": [
                {
                    "name": "v4",
                    "ranges": ["198.51.100.1-198.51.100.9", "198.51.100.20", {"first": "10.0.0.1", "last": "10.0.0.1"}],
                    "silos": [{"silo": "lab", "default": True}],
                },
                {"name": "v6", "family": "v6", "ranges": ["2001:db8::-2001:db8::f"]},
            ],
            "subnet_pools": [{"name": "routed", "networks": ["203.0.113.0/24"], "silos": [{"silo": "lab"}]}],
            "sleds": [
                {"name": "big", "count": 2, "cpus": 8, "memory": "16 GiB", "platform": "amd_turin"},
                {"name": "one"},
            ],
        },
        {"ANN": "oxide-token-from-environment"},
    )

    (silo,) = rack.silos
    (user,) = rack.users
    (project,) = rack.projects
    assert (silo.quota_cpus, silo.quota_memory_bytes, silo.quota_storage_bytes) == (10, 64 * GIB, 1024 * GIB)
    assert (user.role, user.fleet_viewer, len(rack.tokens)) == ("viewer", True, 2)
    expiries = {token.time_expires for token in rack.tokens.values()}
    assert expiries == {None, datetime.datetime(2029, 12, 31, 23, tzinfo=datetime.UTC)}
    assert [key.name for key in rack.ssh_keys] == ["laptop"]
    assert project.roles == {user.id: "collaborator"}
    assert rack.vpcs.by_name(project.id, "default") is not None
    debian = rack.images.by_name(silo.id, "debian")
    assert debian is not None
    assert (debian.id, debian.size_bytes) == (identity, GIB * 3 // 2)
    mine = rack.images.by_name(project.id, "mine")
    assert mine is not None
    assert mine.block_size_bytes == 4096
    pool = rack.ip_pools.by_name("fleet", "v4")
    assert pool is not None
    assert pool.links == {silo.id: True}
    assert [(str(first), str(last)) for first, last in pool.ranges][1] == ("198.51.100.20", "198.51.100.20")
    assert [sled.name for sled in rack.sleds.values()] == ["big0", "big1", "one"]
    assert next(iter(rack.sleds.values())).cpu_platform == "amd_turin"
    assert rack.subnet_pools.by_name("fleet", "routed") is not None
    assert (rack.latest_version, rack.storage_capacity_bytes) == ("2026060800.0.0", 1024 * 1024 * GIB)
    assert (rack.timing.instance_start, rack.timing.failure_notice) == (3, 30)


def test_same_seed_same_rack() -> None:
    """A seed fixes all ids; without one they differ from run to run."""
    chosen = config_file.parse(yaml.safe_dump(SMALL | {"seed": 7}))
    ids = [
        [silo.id for silo in furnish.build_rack(chosen, CommandedClock(START), furnish.randomness_of(chosen)).silos]
        for _ in range(2)
    ]
    unseeded = config_file.parse(yaml.safe_dump(SMALL))

    assert ids[0] == ids[1]
    assert furnish.randomness_of(unseeded).random() != furnish.randomness_of(unseeded).random()


def test_modes() -> None:
    """`auto` lets time pass by itself, `commanded` does not; both begin when they are told to."""
    start = {"start_time": "2026-09-01T12:00:00Z"}

    auto = furnish.clock_of(config_file.parse(yaml.safe_dump(SMALL | start)))
    commanded = furnish.clock_of(config_file.parse(yaml.safe_dump(SMALL | start | {"mode": "commanded"})))

    assert isinstance(auto, PassingClock)
    assert isinstance(commanded, CommandedClock)
    assert commanded.now() == START
    assert auto.now() - START < datetime.timedelta(minutes=1)


def test_timing_choices_are_those_of_the_rack() -> None:
    """10: every duration can be chosen, `instant` has none, and `realistic` has the figures that are known."""
    names = {field.name for field in dataclasses.fields(state.Timing)}

    assert set(timing.TimingChoice.model_fields) - {"preset"} == names
    assert set(dataclasses.astuple(timing.PRESETS["instant"])) == {0.0}
    assert timing.PRESETS["quick"] == state.Timing()
    realistic = timing.PRESETS["realistic"]
    assert (realistic.instance_create, realistic.failure_notice, realistic.auto_restart) == (1.2, 30, 60)
    assert (realistic.auto_restart_cooldown, realistic.sled_timeout) == (300, 60)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("silos: []", "silos: at least one is needed"),
        ("{}", "silos: Field required"),
        ("- lab", "a configuration is a mapping"),
        ("silos: [}", "line 1, column 9: not YAML"),
        ("silos: []\nsilos: []", "line 2, column 1: not YAML: the key silos is there twice"),
        (SMALL | {"silo": []}, "silo: unknown field; did you mean silos?"),
        (SMALL | {"listen": "rack:80"}, "listen: 'rack:80': rack is neither an IP address nor `localhost`"),
        (SMALL | {"listen": "127.0.0.1"}, "listen: '127.0.0.1': an endpoint is an address and a port"),
        (SMALL | {"listen": "127.0.0.1:65536"}, "a port is at most 65535"),
        (SMALL | {"listen": None}, "listen and tls: at least one is needed"),
        (SMALL | {"tls": {"listen": "127.0.0.1:0"}}, "tls: give either certificate and key, or self_signed: true"),
        (SMALL | {"tls": {"listen": "127.0.0.1:0", "key": "k"}}, "give either certificate and key"),
        (SMALL | {"control": {"listen": "127.0.0.1:0"}}, "control: give exactly one of token, token_file, token_env"),
        (SMALL | {"timing": "fast"}, "timing.preset: should be 'instant', 'quick' or 'realistic'"),
        (SMALL | {"timing": {"instance_start": -1}}, "timing.instance_start: -1: should be greater than or equal to 0"),
        (SMALL | {"timing": {"start": 1}}, "timing.start: unknown field"),
        (SMALL | {"mode": "manual"}, "mode: 'manual': should be 'auto' or 'commanded'"),
        (SMALL | {"api_version": "1.0"}, "api_version: '1.0': "),
        (SMALL | {"sleds": [{"count": 0}]}, "sleds[0].count: 0: should be greater than or equal to 1"),
        (SMALL | {"sleds": [{}, {}]}, "sleds: sled is there 2 times; names differ"),
        ({"silos": [{"name": "Lab"}]}, "silos[0].name: 'Lab': name must begin with an ASCII lowercase character"),
        ({"silos": [{"name": "lab"}, {"name": "lab"}]}, "silos: lab is there 2 times; names differ"),
        (
            {"silos": [{"name": "lab", "quotas": {"memory": "3 GB"}}]},
            "silos[0].quotas.memory: '3 GB': the unit GB is not known here; use one of B, KiB, MiB, GiB, TiB, PiB",
        ),
        (
            {"silos": [{"name": "lab", "projects": [{"name": "p", "roles": {"bob": "viewer"}}]}]},
            "silos[0]: projects p roles: bob is not defined; defined are: none at all",
        ),
        (
            {
                "silos": [
                    {"name": "lab", "images": [{"name": "i", "project": "p", "os": "x", "version": "1", "size": 1}]}
                ]
            },
            "silos[0]: images project: p is not defined",
        ),
        (
            SMALL | {"ip_pools": [{"name": "p", "ranges": ["10.0.0.9-10.0.0.1"]}]},
            "10.0.0.9 to 10.0.0.1 is no range; first and last are of one family and ascend",
        ),
        (
            SMALL | {"ip_pools": [{"name": "p", "ranges": ["2001:db8::1"]}]},
            "ip_pools[0]: ranges: 2001:db8::1 is not of the pool's family v4",
        ),
        (
            SMALL | {"ip_pools": [{"name": "p", "ranges": ["224.0.0.1"]}]},
            "ip_pools[0]: ranges: 224.0.0.1 does not fit a pool of type unicast",
        ),
        (
            SMALL | {"ip_pools": [{"name": "p", "ranges": ["10.0.0.1"], "silos": [{"silo": "lob"}]}]},
            "pool p silos: lob is not defined; defined are: lab",
        ),
        (
            SMALL
            | {"ip_pools": [{"name": "p", "ranges": ["10.0.0.1-10.0.0.9"]}, {"name": "q", "ranges": ["10.0.0.9"]}]},
            "pools p and q both hold 10.0.0.9; ranges do not overlap",
        ),
        (
            SMALL
            | {
                "ip_pools": [
                    {"name": name, "ranges": [f"10.0.0.{number}"], "silos": [{"silo": "lab", "default": True}]}
                    for number, name in enumerate(("p", "q"))
                ]
            },
            "pools p and q are both the default of silo lab for unicast v4; at most one may be",
        ),
        (
            SMALL | {"subnet_pools": [{"name": "s", "networks": ["10.0.0.0/24", "10.0.0.128/25"]}]},
            "subnet pools s and s both hold 10.0.0.128; networks do not overlap",
        ),
        (
            SMALL | {"subnet_pools": [{"name": "s", "networks": ["2001:db8::/64"]}]},
            "subnet_pools[0]: networks: 2001:db8::/64 is not of the pool's family v4",
        ),
        (with_user(role="boss"), "silos[0].users[0].role: 'boss': should be 'admin', 'collaborator'"),
        (with_user(tokens=[{}]), "silos[0].users[0].tokens[0]: give exactly one of token, token_file, token_env"),
        (with_user(tokens=[{"token_env": "1X"}]), "silos[0].users[0].tokens[0].token_env: "),
        (with_user(tokens=[{"token_env": "X", "create": True}]), "create: true needs token_file"),
    ],
)
def test_complaints(wanted: Any, said: str) -> None:
    """A configuration that cannot be used is refused with field, value, and what is possible."""
    assert said in complaints(wanted)


def test_all_complaints_at_once() -> None:
    """Whoever mends a configuration learns of every mistake in one go, a line each."""
    found = complaints({"silos": [{"name": "Lab", "users": [{"name": ""}]}], "mode": "manual", "seed": "x"})

    assert len(found.splitlines()) == 4


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """Files that a configuration names are looked for beside it."""
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "token").chmod(0o600)
    wanted = with_user(tokens=[{"token_file": "token"}]) | {
        "tls": {"listen": "127.0.0.1:0", "certificate": "rack.pem", "key": "rack.key"},
        "control": {"listen": "127.0.0.1:0", "token_file": "control"},
    }
    (tmp_path / "rack.yaml").write_text(yaml.safe_dump(wanted))

    chosen = config_file.load(tmp_path / "rack.yaml")

    assert chosen.tls is not None
    assert chosen.tls.certificate == tmp_path / "rack.pem"
    assert chosen.control is not None
    assert chosen.control.token_file == tmp_path / "control"
    assert len(furnish.build_rack(chosen, CommandedClock(START), random.Random(1)).tokens) == 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, and one that is no text, are refused by name; so is each mistake in one that can be read."""
    binary, wrong = tmp_path / "binary.yaml", tmp_path / "wrong.yaml"
    binary.write_bytes(b"\xff\xfe")
    wrong.write_text("mode: manual\nsilos: []\n")

    for path, said in (
        (tmp_path / "missing.yaml", "cannot be read: No such file or directory"),
        (binary, "is not UTF-8 text"),
        (wrong, "mode: 'manual': "),
    ):
        with pytest.raises(config_file.ConfigError) as caught:
            config_file.load(path)
        assert all(line.startswith(f"{path}: ") for line in str(caught.value).splitlines())
        assert said in str(caught.value)


@pytest.mark.parametrize("variables", [{}, {"CAPOX_RACK_TOKEN": SECRET, "CAPOX_RACK_CONTROL_TOKEN": "control-secret"}])
def test_rack_without_a_configuration(tmp_path: Path, variables: dict[str, str]) -> None:
    """Without a file there is a rack that can be used at once; its tokens come from the environment or are made up."""
    environment = settings.from_variables({"CAPOX_RACK_STATE_DIR": str(tmp_path / "state"), **variables}, user_id=0)

    chosen = config_file.default(environment)
    rack = furnish.build_rack(chosen, CommandedClock(START), random.Random(1), environment.variables)

    assert [len(table) for table in (rack.silos, rack.users, rack.projects, rack.images)] == [1, 1, 1, 1]
    assert len(rack.tokens) == 1
    assert chosen.listen == Endpoint("127.0.0.1", 12220)
    assert chosen.control is not None
    assert chosen.control.listen == Endpoint("127.0.0.1", 12221)
    token = credentials.read_token(chosen.control, environment.variables, prefix="")
    assert (token == "control-secret") is bool(variables)
    assert (tmp_path / "state").exists() is not bool(variables)


def test_example() -> None:
    """The example in the documentation is a rack, and shows every section that there is."""
    chosen = config_file.load(EXAMPLE)
    silos = [
        silo.model_copy(update={"users": tuple(user.model_copy(update={"tokens": ()}) for user in silo.users)})
        for silo in chosen.silos
    ]
    tokenless = chosen.model_copy(update={"silos": tuple(silos)})

    rack = furnish.build_rack(tokenless, furnish.clock_of(chosen), furnish.randomness_of(chosen))

    assert [project.name for project in rack.projects] == ["demo"]
    assert set(yaml.safe_load(EXAMPLE.read_text())) >= set(config.Config.model_fields) - {"start_time", "tls"}


def test_roles_are_the_rack_s() -> None:
    """Each role of the rack can be given, and `None` stands for none."""
    for role in ("admin", "collaborator", "limited_collaborator", "viewer", None):
        (user,) = build(with_user(role=role)).users
        assert isinstance(user, records.User)
        assert user.role == role


def test_configuration_is_frozen() -> None:
    """A configuration does not change while it is used."""
    chosen = config_file.parse(yaml.safe_dump(SMALL))

    with pytest.raises(ValueError, match="frozen"):
        chosen.mode = "commanded"
    assert isinstance(chosen, config.Config)
