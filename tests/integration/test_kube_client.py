"""The Kubernetes client against a real apiserver."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from capox.kube import errors
from capox.kube.client import KubeAPI, KubeClient
from capox.kube.events import EventRecorder
from capox.kube.kind import SECRETS
from capox.kube.lease import LeaderElection, LeaseTimes
from capox.kube.metrics import EventMetrics, LeaseMetrics, Registry
from capox.kube.probe import probe
from capox.kube.workqueue import Request
from hack.controlplane.pki import CertificateAuthority
from hack.controlplane.plane import ControlPlane
from tests.contract.kube.stories import MACHINES, KubernetesStories, machine, secret


@pytest.fixture(scope="module")
def plane(own_kinds: ControlPlane) -> ControlPlane:
    """The shared control plane, serving the one kind of ours that the stories use."""
    return own_kinds


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[KubeAPI]:
    """The client, as an administrator."""
    async with await KubeClient.login(plane.kubeconfig) as client:
        yield client


@pytest.fixture
def end_namespace(control_plane: ControlPlane) -> Callable[[str], None]:
    """Begins the end of a namespace."""

    def end(name: str) -> None:
        control_plane.client.request("DELETE", f"/api/v1/namespaces/{name}")

    return end


class TestApiserver(KubernetesStories):
    """Every story holds for the real apiserver, read and written by the client."""


async def test_a_list_is_read_page_by_page(plane: ControlPlane, namespace: str) -> None:
    """All objects come, in order and once, however many pages they fill."""
    async with await KubeClient.login(plane.kubeconfig) as api:
        for number in range(7):
            await api.create(MACHINES, namespace, machine(namespace, f"m{number}", labels={"even": str(number % 2)}))
    configuration = api._configuration
    async with KubeClient(configuration, list_limit=2) as pages:
        found = await pages.list(MACHINES, namespace)
        some = await pages.list(MACHINES, namespace, {"even": "0"})

    assert [item.metadata.name for item in found] == [f"m{number}" for number in range(7)]
    assert [item.metadata.name for item in some] == ["m0", "m2", "m4", "m6"]


class Account:
    """A ServiceAccount's files, as a Pod would find them.

    Args:
        plane: Where the account is.
        namespace: Its namespace.
        directory: Where its files are put.
    """

    def __init__(self, plane: ControlPlane, namespace: str, directory: Path) -> None:
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.directory = directory
        (directory / "ca.crt").write_bytes((plane.pki.directory / "ca.crt").read_bytes())

    def become(self, name: str) -> None:
        """Put the token of an account into the file, as the kubelet does: another file takes the name."""
        if not self._plane.client.exists(f"{self._path}/{name}"):
            document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            self._plane.client.post(self._path, document)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        answer = self._plane.client.post(f"{self._path}/{name}/token", request)
        self.write(answer["status"]["token"])

    def write(self, token: str) -> None:
        """Put a token into the file."""
        (self.directory / "next").write_text(token)
        (self.directory / "next").rename(self.directory / "token")


@pytest.fixture
def account(control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    """The files and variables of a Pod."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(control_plane.port))
    return Account(control_plane, namespace, tmp_path)


async def test_a_renewed_token_is_used_from_the_next_call_on(account: Account, namespace: str) -> None:
    """Who we are is what the file says at the moment of the call."""
    account.become("first")
    async with KubeClient.in_cluster(account.directory) as api:
        for name in ("first", "second"):
            account.become(name)
            with pytest.raises(errors.Forbidden, match=f"system:serviceaccount:{namespace}:{name}") as refused:
                await api.get(SECRETS, namespace, "any")
            assert not refused.value.is_namespace_terminating


async def test_a_token_that_is_not_accepted_is_unauthorized(account: Account, namespace: str) -> None:
    """And the error does not carry it; with a good one the same client goes on."""
    account.write("no-such-token")
    async with KubeClient.in_cluster(account.directory) as api:
        with pytest.raises(errors.Unauthorized) as refused:
            await api.get(SECRETS, namespace, "any")
        assert "no-such-token" not in repr(refused.value)

        account.become("first")
        with pytest.raises(errors.Forbidden):
            await api.get(SECRETS, namespace, "any")


async def test_a_missing_token_file_leaves_the_last_token(account: Account, namespace: str) -> None:
    """In the moment of a renewal there may be none."""
    account.become("first")
    async with KubeClient.in_cluster(account.directory) as api:
        (account.directory / "token").unlink()
        with pytest.raises(errors.Forbidden, match="first"):
            await api.get(SECRETS, namespace, "any")


async def test_another_authority_is_no_answer(account: Account, tmp_path: Path, namespace: str) -> None:
    """An apiserver whose certificate is not of our authority gets no token."""
    account.become("first")
    other = CertificateAuthority("somebody else")
    (tmp_path / "ca.crt").write_bytes(other.key_pair.certificate)
    async with KubeClient.in_cluster(tmp_path) as api:
        with pytest.raises(errors.NoAnswer, match=r"(?i)certificate"):
            await api.get(SECRETS, namespace, "any")


async def test_an_authority_that_cannot_be_read_is_said(account: Account, tmp_path: Path) -> None:
    """LoginError, before any call."""
    account.become("first")
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(errors.LoginError):
        KubeClient.in_cluster(tmp_path)


async def test_a_kubeconfig_that_is_not_there_is_said(tmp_path: Path) -> None:
    """LoginError names the file."""
    with pytest.raises(errors.LoginError, match="absent"):
        await KubeClient.login(tmp_path / "absent")


async def test_nothing_of_a_secret_is_in_an_error(api: KubeAPI, namespace: str) -> None:
    """A Secret that the apiserver refuses is refused without its values."""
    document = secret(namespace, "one", token=b"t0ken-of-the-rack") | {"type": "kubernetes.io/tls"}
    with pytest.raises(errors.Invalid) as refused:
        await api.create(SECRETS, namespace, document)

    assert "t0ken" not in str(refused.value)
    assert str(document["data"]) not in repr(refused.value)


async def test_an_apiserver_that_is_away_is_no_answer(control_plane: ControlPlane, tmp_path: Path) -> None:
    """At once where nobody listens."""
    text = control_plane.kubeconfig.read_text().replace(str(control_plane.port), "1")
    (tmp_path / "config").write_text(text)
    before = time.monotonic()
    async with await KubeClient.login(tmp_path / "config") as api:
        with pytest.raises(errors.NoAnswer):
            await api.get(SECRETS, "default", "any")
    assert time.monotonic() - before < 30


async def test_events_are_taken_and_counted(plane: ControlPlane, api: KubeAPI, namespace: str) -> None:
    """The apiserver takes the Event that is recorded, and its count; `kubectl describe` shows it."""
    resource = await api.create(MACHINES, namespace, machine(namespace, "one"))
    recorder = EventRecorder(
        api,
        component="capox-controller",
        instance="test",
        now=lambda: datetime.now(UTC),
        randomness=random.Random(),
        metrics=EventMetrics(Registry()),
        repeat_seconds=0.0,
    )
    sending = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.warning(resource, "NameConflict", "an instance of this name is there")
        assert await recorder.drain(30)
    sending.cancel()
    (event,) = plane.client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]

    assert event["series"]["count"] == 3
    described = plane.kubectl("describe", "oxidemachine", "one", "-n", namespace)
    assert "NameConflict" in described
    assert "an instance of this name is there" in described


async def test_a_lease_is_taken_renewed_and_given_up(plane: ControlPlane, api: KubeAPI, namespace: str) -> None:
    """The apiserver takes each of the records, and a second process takes over."""

    def election(identity: str) -> LeaderElection:
        """Give an election."""
        return LeaderElection(
            api,
            [Request(namespace, "capox-leader")],
            identity=identity,
            on_lost=lambda: None,
            now=lambda: datetime.now(UTC),
            randomness=random.Random(),
            metrics=LeaseMetrics(Registry()),
            times=LeaseTimes(lease_seconds=3, renew_deadline_seconds=2, retry_seconds=0.2),
        )

    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/capox-leader"

    async def work() -> dict[str, Any]:
        """Wait until the Lease has been renewed."""
        first = plane.client.get(path)["spec"]
        async with asyncio.timeout(10):
            while True:
                spec: dict[str, Any] = plane.client.get(path)["spec"]
                if spec["renewTime"] > first["renewTime"]:
                    return spec
                await asyncio.sleep(0.05)

    first = await election("first").run(work)
    assert "holderIdentity" not in plane.client.get(path)["spec"]
    second = await election("second").run(work)

    assert (first["holderIdentity"], first["leaseTransitions"]) == ("first", 0)
    assert (second["holderIdentity"], second["leaseTransitions"]) == ("second", 1)


async def test_the_probe_finds_a_real_apiserver(control_plane: ControlPlane) -> None:
    """It knows neither its authority nor any credentials; where nobody listens it finds none."""
    assert await probe("127.0.0.1", control_plane.port)
    assert await probe("localhost", control_plane.port)
    assert not await probe("127.0.0.1", 1)
