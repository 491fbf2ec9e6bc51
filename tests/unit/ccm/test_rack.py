"""The project, seen before it is believed; credentials that change; no write without the Lease (R1, R3, S23)."""

from __future__ import annotations

import asyncio
import pathlib

import pytest
from pydantic import SecretStr

from capox.ccm.credentials import Credentials, CredentialsError, CredentialsSource
from capox.ccm.leading import NotLeadingError
from capox.ccm.rack import RETIRED_SECONDS, Rack
from capox.kube.metrics import CallMetrics, Registry
from capox.oxide.client import OxideClient
from capox.oxide.clock import LoopClock
from capox.oxide.errors import NotVisible, TransportError, Unauthorized
from capox.oxide.models.external_ips import FloatingIpAttach
from capox.rack.clock import PassingClock
from tests.rack import RackUnderTest
from tests.sim.loop import EPOCH, simulated, simulation_loop
from tests.sim.world import RackTransport

FLOATING_IP = "0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c00"


def credentials(token: str = "limited_collaborator", project: str = "demo") -> Credentials:
    """Credentials of one of the rack's users."""
    return Credentials(host="http://rack", token=SecretStr(f"oxide-token-{token}"), project=project)


class Scene:
    """A rack, and what the process sees of it."""

    def __init__(self) -> None:
        self.under_test = RackUnderTest(passing=PassingClock(simulation_loop().time, EPOCH))
        self.credentials: Credentials | Exception = credentials()
        self.is_leading = True
        self.made: list[OxideClient] = []
        self.registry = Registry()
        self.rack = Rack(
            self._read,
            LoopClock(),
            is_leading=lambda: self.is_leading,
            connect=self._connect,
            counter=CallMetrics(self.registry),
        )

    async def end(self) -> None:
        """End everything."""
        await self.rack.aclose()
        await self.under_test.http.aclose()

    def calls(self) -> list[str]:
        """The operations that the rack was asked for."""
        return [str(call.operation) for call in self.under_test.app.log.entries(0)]

    def _read(self) -> Credentials:
        if isinstance(self.credentials, Exception):
            raise self.credentials
        return self.credentials

    def _connect(self, chosen: Credentials) -> OxideClient:
        client = OxideClient(
            host=chosen.host,
            token=chosen.token,
            ca=chosen.ca,
            transport=RackTransport(self.under_test.app),
            clock=LoopClock(),
        )
        self.made.append(client)
        return client


@simulated
async def test_the_project_is_seen_once_and_shared() -> None:
    """R3: silo and project are looked at before anything else, by however many workers only once."""
    scene = Scene()
    found = await asyncio.gather(*(scene.rack.project() for _ in range(10)))

    assert len({id(each) for each in found}) == 1
    assert (found[0].name, found[0].silo_name) == ("demo", "lab")
    assert scene.calls() == ["current_user_view", "project_view"]
    assert scene.rack.trouble is None
    assert scene.registry.value("capox_rack_calls_total", operation="project_view", result="success") == 1
    await scene.end()


@simulated
async def test_a_project_that_is_not_seen_is_nobodys() -> None:
    """L2: a wrong project, or the right one with a token that may not see it, gives no project at all."""
    scene = Scene()
    for wrong in (credentials(project="elsewhere"), credentials("stranger")):
        scene.credentials = wrong
        with pytest.raises(NotVisible):
            await scene.rack.project()
        assert scene.rack.trouble is not None
        assert not scene.rack.is_verified
    await scene.end()


@simulated
async def test_refused_credentials_are_left_alone_for_a_while() -> None:
    """S23: while a token is refused the rack is asked once a minute, whoever wants to work."""
    scene = Scene()
    scene.credentials = credentials("wrong")
    for _ in range(120):
        with pytest.raises(Unauthorized):
            await scene.rack.project()
        await asyncio.sleep(1)

    assert scene.calls() == ["current_user_view"] * 2
    await scene.end()


@simulated
async def test_a_token_that_ends_is_noticed_and_replaced() -> None:
    """R3: after a 401 everybody waits; new credentials are taken at once, and the old client is closed in the end."""
    scene = Scene()
    before = await scene.rack.project()
    scene.under_test.state.tokens.clear()
    with pytest.raises(Unauthorized):
        await before.client.project_view("demo")
    troubles = [scene.rack.trouble]
    with pytest.raises(Unauthorized):
        await scene.rack.project()

    scene.under_test.add_user("fresh", scene.under_test.silo, "limited_collaborator")
    scene.credentials = credentials("fresh")
    after = await scene.rack.project()
    assert after.identity == before.identity
    assert [*troubles, scene.rack.trouble] == ["the rack refuses the credentials", None]
    await asyncio.sleep(RETIRED_SECONDS + 1)
    with pytest.raises(TransportError):
        await before.client.project_view("demo")
    await scene.end()


@simulated
async def test_credentials_that_cannot_be_used_are_told_without_them() -> None:
    """R3: a missing one, or a token that no header can carry, is an error that names no value."""
    scene = Scene()
    for wrong in (CredentialsError("the variable OXIDE_TOKEN is missing"), credentials("se cret\n")):
        scene.credentials = wrong
        with pytest.raises(CredentialsError) as caught:
            await scene.rack.project()
        assert "se cret" not in str(caught.value)
    scene.credentials = credentials()
    await scene.rack.project()
    await scene.end()


@simulated
async def test_no_write_leaves_without_the_lease() -> None:
    """R1: a write is refused here, before the rack has heard of it; reads go on."""
    scene = Scene()
    project = await scene.rack.project()
    scene.is_leading = False
    before = scene.calls()
    with pytest.raises(NotLeadingError):
        await project.client.floating_ip_attach(FLOATING_IP, FloatingIpAttach(parent=FLOATING_IP))
    assert scene.calls() == before

    await project.inventory.floating_ips.recent()
    assert "floating_ip_list" in scene.calls()
    await scene.end()


def test_files_win_over_variables_and_may_change(tmp_path: pathlib.Path) -> None:
    """R3: a mounted Secret's files are read each time; what has no file comes from the environment."""
    variables = {"OXIDE_HOST": SecretStr("https://one.example"), "OXIDE_TOKEN": SecretStr("first")}
    source = CredentialsSource(variables, tmp_path)
    with pytest.raises(CredentialsError, match="OXIDE_PROJECT"):
        source.read()
    (tmp_path / "oxide-project").write_text("demo\n")
    assert source.read().token.get_secret_value() == "first"
    (tmp_path / "oxide-token").write_text("second\n")
    (tmp_path / "oxide-ca").write_text("")
    found = source.read()

    assert (found.host, found.project, found.ca) == ("https://one.example", "demo", None)
    assert found.token.get_secret_value() == "second"
    (tmp_path / "oxide-token").write_bytes(b"\xff")
    with pytest.raises(CredentialsError, match="oxide-token"):
        source.read()
