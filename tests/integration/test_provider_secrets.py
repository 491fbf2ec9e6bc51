"""Credentials that are missing, wrong or rotated, and where secrets must never be."""

from __future__ import annotations

import base64
import gzip
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from capox.api.v1alpha1 import CREDENTIALS_FINALIZER
from capox.provider.secret_guard import MOVE_LABEL
from hack.controlplane.capi import ManagementCluster
from tests.integration.stage import SECOND_TOKEN, TOKEN, Stage, open_stage
from tests.integration.waiting import eventually
from tests.leaks import find_leaks

PICKED_UP_SECONDS = 150.0
"""Nobody watches Secrets: they are looked at again about every 30 seconds, by machines about every 120."""


@pytest.fixture
def stage(own_kinds: ManagementCluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    """A rack and the provider, which tells as much as it can; the control plane is shared."""
    with open_stage(own_kinds, namespace, tmp_path, "--log-level=debug") as stage:
        yield stage


def test_credentials_come_later_and_are_corrected(stage: Stage) -> None:
    """No Secret, then a wrong token: a condition names Secret and remedy; the right one is taken up."""
    name = f"{stage.namespace}/oxide-credentials"
    stage.delete("secret", "oxide-credentials")
    stage.apply(*stage.plain_cluster("web"))
    message = stage.await_reason("oxidecluster", "web", "CredentialsInvalid", condition_type="CredentialsValid")
    assert name in message
    assert "make it with keys oxide-host and oxide-token" in message
    assert stage.condition("oxidecluster", "web")["reason"] == "CredentialsInvalid"

    stage.add_credentials("wrong-token-of-tests")
    eventually(
        "the rack's refusal is told",
        lambda: "check the Secret's token" in stage.condition("oxidecluster", "web", "CredentialsValid")["message"],
        within_seconds=PICKED_UP_SECONDS,
    )
    assert "wrong-token-of-tests" not in json.dumps(stage.get("oxidecluster", "web"))
    assert stage.writes() == []

    stage.add_credentials()
    stage.await_ready("oxidecluster", "web", within_seconds=PICKED_UP_SECONDS)
    assert stage.condition("oxidecluster", "web", "CredentialsValid")["status"] == "True"
    stage.delete_cluster("web")


def test_a_rotated_token_is_used_and_the_old_one_is_not(stage: Stage) -> None:
    """After a rotation all goes on without a restart, and nothing is done with the old token any more."""
    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web"))
    stage.await_settled("web", "web-0")

    stage.add_credentials(SECOND_TOKEN)
    last_call = stage.last_call()
    stage.apply(*stage.control_plane_machine("web-1", "web"))
    stage.await_ready("oxidemachine", "web-1")
    assert stage.is_ready("oxidemachine", "web-0")
    stage.delete_cluster("web")
    assert stage.instances() == stage.on_rack("floating-ips") == []
    writers = {call["user"] for call in stage.rack.control.calls(last_call) if call["method"] != "GET"}
    assert writers == {"successor"}


def test_a_refused_token_loses_nothing(stage: Stage) -> None:
    """While the rack refuses the token, a condition says so; instance, providerID and readiness stay as they are."""
    stage.apply(*stage.plain_cluster("web"), *stage.control_plane_machine("web-0", "web"))
    provider_id = stage.await_settled("web", "web-0")["spec"]["providerID"]
    stage.add_credentials("wrong-token-of-tests")
    last_call = stage.last_call()
    for kind, name in (("oxidecluster", "web"), ("oxidemachine", "web-0")):
        stage.annotate(kind, name, "cluster.x-k8s.io/looked-at=again")
    stage.await_reason("oxidecluster", "web", "CredentialsInvalid", condition_type="CredentialsValid")
    eventually(
        "the machine was looked at, too",
        lambda: sum(call["status"] == 401 for call in stage.rack.control.calls(last_call)) >= 2,
    )
    assert stage.is_ready("oxidecluster", "web")
    assert stage.is_ready("oxidemachine", "web-0")
    assert stage.get("oxidemachine", "web-0")["spec"]["providerID"] == provider_id
    assert stage.writes(last_call) == []
    assert len(stage.instances()) == 1

    stage.add_credentials()
    eventually(
        "the credentials are valid",
        lambda: stage.condition("oxidecluster", "web", "CredentialsValid")["status"] == "True",
        within_seconds=PICKED_UP_SECONDS,
    )
    stage.delete_cluster("web")
    assert stage.instances() == []


def places(stage: Stage) -> dict[str, str | bytes]:
    """Everything that anybody can read who may read no Secret."""
    kinds = ("event", "cluster", "machine", "oxidecluster", "oxidemachine", "oxidemachinetemplate")
    return {
        "the provider's log": stage.provider.log_file.read_bytes(),
        "the rack's log": stage.rack.log_file.read_bytes(),
        "the rack's output": stage.rack.output_file.read_bytes(),
        "the rack's inventory": json.dumps(stage.rack.control.inventory()),
        "the rack's call log": json.dumps(stage.rack.control.calls()),
        **{f"{kind} objects": json.dumps(stage.objects(kind)) for kind in kinds},
    }


def test_no_secret_gets_anywhere(stage: Stage) -> None:
    """In a whole life with errors no token and no user data is in any log, Event, object or on the rack's lists."""
    password, packed_password = (f"password-{secrets.token_hex(16)}" for _ in range(2))
    large = f"#cloud-config\n# {packed_password}\n".encode() + b"# filler\n" * 8192
    sought = {
        "the token": TOKEN.encode(),
        "the user data": password.encode(),
        "the packed user data": packed_password.encode(),
        "user data as it is sent": gzip.compress(large, compresslevel=9, mtime=0)[10:60],
    }
    faults = ("internal_error", "lost_reply", "insufficient_capacity", "internal_error_after")
    for kind in faults:
        stage.rack.control.add_fault(kind, probability=0.3, times=2, seed=3, operation="*_create")
    stage.apply(
        *stage.plain_cluster("web"),
        *stage.control_plane_machine("web-0", "web", bootstrap_data=f"#cloud-config\n# {password}\n".encode()),
        *stage.control_plane_machine("web-1", "web", bootstrap_data=large),
        *stage.control_plane_machine("web-2", "web", bootstrap_data=password.encode() + secrets.token_bytes(40_000)),
    )
    stage.await_reason("oxidemachine", "web-2", "UserDataTooLarge", within_seconds=150)
    for name in ("web-0", "web-1"):
        stage.await_ready("oxidemachine", name, within_seconds=180)
    alive = places(stage)
    stage.delete_cluster("web")
    stage.provider.stop()
    afterwards = places(stage)

    assert find_leaks(sought, alive) == []
    assert find_leaks(sought, afterwards) == []
    assert len(alive["the provider's log"]) > 1000
    assert json.loads(alive["event objects"])


def test_a_planted_secret_is_found(stage: Stage) -> None:
    """The same search finds each secret, in each form, in each place."""
    stage.apply(*stage.plain_cluster("web"))
    stage.await_ready("oxidecluster", "web")
    sought = {"the token": TOKEN.encode(), "the user data": b"#cloud-config\n# password-planted\n"}
    found_there = places(stage)
    assert find_leaks(sought, found_there) == []

    for secret in sought.values():
        for form in (secret, base64.b64encode(secret), base64.b64encode(gzip.compress(secret))):
            for place, content in found_there.items():
                raw = content if isinstance(content, bytes) else content.encode()
                assert find_leaks(sought, {place: raw + b'"' + form + b'"'}), (place, form)

    encoded = base64.b64encode(sought["the user data"]).decode()
    stage.annotate("oxidecluster", "web", f"planted={TOKEN}")
    stage.tell("/v1/floating-ips", {"name": "planted", "description": encoded})
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "planted", "namespace": stage.namespace},
        "involvedObject": {"kind": "OxideCluster", "name": "web", "namespace": stage.namespace},
        "message": encoded,
        "reason": "Planted",
        "type": "Normal",
    }
    stage.plane.client.post(stage.path("event"), event)
    leaks = find_leaks(sought, places(stage))
    assert "oxidecluster objects holds the token" in leaks
    assert "event objects holds the user data" in leaks
    assert "the rack's inventory holds the user data" in leaks


def test_credentials_stay_until_everything_is_gone(stage: Stage) -> None:
    """The apiserver keeps Secrets that were deleted first, under the shipped rights, until all is gone (B27)."""
    ours = {"oxide-credentials", "oxide-ccm"}
    stage.apply(stage.secret("oxide-ccm", {"oxide-host": stage.rack.url, "oxide-token": SECOND_TOKEN}))
    manager = {"credentialsRef": {"name": "oxide-ccm"}}
    stage.apply(
        *stage.plain_cluster("web", cloudControllerManager=manager), *stage.control_plane_machine("web-0", "web")
    )
    stage.await_ready("oxidemachine", "web-0")
    for name in ours:
        kept = stage.get("secret", name)["metadata"]
        assert kept["finalizers"] == [CREDENTIALS_FINALIZER]
        assert kept["labels"][MOVE_LABEL] == ""
        assert "ownerReferences" not in kept

    for name in ours:
        stage.delete("secret", name)
        assert stage.get("secret", name)["metadata"]["deletionTimestamp"]
    stage.delete_cluster("web")

    assert stage.instances() == stage.on_rack("floating-ips") == stage.on_rack("disks") == []
    eventually(
        "the Secrets are gone",
        lambda: not ours & {each["metadata"]["name"] for each in stage.objects("secret")},
        within_seconds=30,
    )
