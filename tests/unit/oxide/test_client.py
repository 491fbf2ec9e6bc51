"""How requests travel: headers, repetition, deadlines, limits. On virtual time, to a rack that follows a script."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import SecretStr

from capox.oxide import API_VERSION, OxideClient, TokenBucket, client, errors
from capox.oxide.models import DefaultInterface, InstanceCreate
from tests.sim.loop import seconds, simulated
from tests.unit.oxide import examples
from tests.unit.oxide.scripted import REQUEST_ID, TOKEN, Reply, ScriptedRack, refusal

if TYPE_CHECKING:
    from collections.abc import MutableMapping

GOOD = Reply(body=examples.instance())
BUSY = refusal(503, "ServiceNotAvailable", "Service Unavailable")


def _create_body() -> InstanceCreate:
    return InstanceCreate(
        name="machine-1",
        description="",
        hostname="machine-1",
        ncpus=4,
        memory=8 * 2**30,
        network_interfaces=DefaultInterface(type="default_ipv4"),
        ssh_public_keys=(),
        user_data=b"a very secret join token",  # type: ignore[arg-type]  # the model makes a secret of it
    )


class _Longest(random.Random):
    """Chooses the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        """Give the upper bound."""
        return max(a, b)


@simulated
async def test_a_request_says_who_asks_and_in_which_version() -> None:
    """Token, fixed api-version, no compression; a content type only with content."""
    rack = ScriptedRack(GOOD, Reply(status=201, body=examples.instance()))
    async with rack.client() as oxide:
        await oxide.instance_view("machine-1", project="demo")
        await oxide.instance_create(_create_body(), project="demo")

    read, written = rack.asked
    assert (read.verb, read.path, read.query) == ("GET", "/v1/instances/machine-1", {"project": "demo"})
    assert read.headers["authorization"] == f"Bearer {TOKEN}"
    assert read.headers["api-version"] == API_VERSION == "2026060800.0.0"
    assert read.headers["accept-encoding"] == "identity"
    assert read.headers["user-agent"].startswith("capox/")
    assert "content-type" not in read.headers
    assert (written.verb, written.path) == ("POST", "/v1/instances")
    assert written.headers["content-type"] == "application/json"


@simulated
async def test_a_read_is_repeated_until_it_succeeds() -> None:
    """What passes by itself is waited for, a little longer each time."""
    rack = ScriptedRack(BUSY, refusal(500, "Internal", "Internal Server Error"), Reply(status=502, body=b"oops"), GOOD)
    async with rack.client(randomness=_Longest()) as oxide:
        assert (await oxide.instance_view(examples.instance_id(1))).name == "instance-1"

    assert [asked.seconds for asked in rack.asked] == [0.0, 0.25, 0.75, 1.75]


@simulated
async def test_a_pause_is_random() -> None:
    """Many clients that failed together do not come back together."""
    rack = ScriptedRack(BUSY)
    for seed in range(20):
        async with rack.client(randomness=random.Random(seed)) as oxide:
            with pytest.raises(errors.ServiceUnavailable):
                await oxide.ping()

    first_pauses = {rack.asked[4 * n + 1].seconds - rack.asked[4 * n].seconds for n in range(20)}
    assert len(first_pauses) == 20
    assert max(first_pauses) - min(first_pauses) > 0.1
    assert max(first_pauses) <= 0.25


@simulated
async def test_a_read_is_not_repeated_for_ever() -> None:
    """After four attempts the last refusal is the caller's."""
    rack = ScriptedRack(BUSY)
    async with rack.client() as oxide:
        with pytest.raises(errors.ServiceUnavailable) as caught:
            await oxide.instance_view("machine-1", project="demo")

    assert len(rack.asked) == client.READ_ATTEMPTS
    assert caught.value.request_id == REQUEST_ID


@pytest.mark.parametrize(
    "reply",
    [
        refusal(404, "ObjectNotFound"),
        refusal(400),
        refusal(401, "Unauthorized"),
        refusal(403, "Forbidden"),
        refusal(409, "Conflict"),
        refusal(507, "InsufficientCapacity"),
        Reply(body=b"not JSON"),
        Reply(status=302, headers={"location": "http://elsewhere.example/v1/me"}),
    ],
    ids=lambda reply: str(reply.status),
)
def test_what_repeating_does_not_help_is_not_repeated(reply: Reply) -> None:
    """A refusal that will be the same again, or an answer that is nonsense, is the caller's at once."""

    @simulated
    async def ask() -> None:
        """Ask once."""
        rack = ScriptedRack(reply)
        async with rack.client() as oxide:
            with pytest.raises(errors.OxideError):
                await oxide.current_user_view()

        assert len(rack.asked) == 1

    ask()


@pytest.mark.parametrize("reply", [BUSY, refusal(500, "Internal"), refusal(429), Reply(status=502)])
def test_a_write_is_never_repeated(reply: Reply) -> None:
    """Whoever writes looks at the world again first."""

    @simulated
    async def write() -> None:
        """Write twice."""
        rack = ScriptedRack(reply)
        async with rack.client() as oxide:
            with pytest.raises(errors.OxideError):
                await oxide.instance_create(_create_body(), project="demo")
            with pytest.raises(errors.OxideError):
                await oxide.instance_delete("machine-1", project="demo")

        assert [asked.verb for asked in rack.asked] == ["POST", "DELETE"]

    write()


@simulated
async def test_a_server_that_asks_for_patience_gets_it() -> None:
    """Retry-After lengthens the pause, and is capped."""
    rack = ScriptedRack(refusal(429, headers={"retry-after": "7"}), refusal(503, headers={"retry-after": "9999"}), GOOD)
    async with rack.client(deadline_seconds=600) as oxide:
        await oxide.instance_view(examples.instance_id(1))

    assert [asked.seconds for asked in rack.asked] == [0.0, 7.0, 67.0]


@simulated
async def test_patience_beyond_the_deadline_is_not_begun() -> None:
    """What is known now is said at once, instead of "no answer" at the deadline."""
    rack = ScriptedRack(refusal(429, headers={"retry-after": "50"}))
    async with rack.client(deadline_seconds=30) as oxide:
        with pytest.raises(errors.RateLimited) as caught:
            await oxide.ping()

    assert seconds() == 0.0
    assert caught.value.retry_after_seconds == 50.0


@simulated
async def test_the_deadline_spans_all_attempts() -> None:
    """Three slow refusals do not add up; the error that came before is the cause."""
    rack = ScriptedRack(refusal(503, "ServiceNotAvailable", delay_seconds=12))
    async with rack.client(deadline_seconds=30) as oxide:
        with pytest.raises(errors.TransportError, match="no answer within 30 s") as caught:
            await oxide.ping()

    assert seconds() == 30.0
    assert isinstance(caught.value.__cause__, errors.ServiceUnavailable)
    assert not caught.value.outcome_unknown
    assert rack.cancelled == 1


@simulated
async def test_a_write_has_a_longer_deadline_and_an_unknown_outcome() -> None:
    """A create that takes a minute is waited for; one that takes too long may still be carried out."""
    rack = ScriptedRack(
        Reply(status=201, body=examples.instance(), delay_seconds=90), Reply(status=201, delay_seconds=1000)
    )
    async with rack.client() as oxide:
        await oxide.instance_create(_create_body(), project="demo")
        with pytest.raises(errors.TransportError, match="no answer within 120 s") as caught:
            await oxide.instance_create(_create_body(), project="demo")

    assert caught.value.outcome_unknown
    assert len(rack.asked) == 2


@simulated
async def test_waiting_for_a_token_counts_and_sends_nothing() -> None:
    """A write that never got its turn is known not to have happened."""
    bucket = TokenBucket(rate_per_second=0.001, burst=1)
    rack = ScriptedRack(Reply(status=204))
    async with rack.client(bucket=bucket, write_deadline_seconds=10) as oxide:
        await oxide.instance_delete("machine-1", project="demo")
        with pytest.raises(errors.TransportError, match="could not be sent within 10 s") as caught:
            await oxide.instance_delete("machine-1", project="demo")

    assert not caught.value.outcome_unknown
    assert len(rack.asked) == 1


@simulated
async def test_every_attempt_and_page_takes_a_token() -> None:
    """Two clients of one rack share its bucket, and repetition is not free."""
    bucket = TokenBucket(rate_per_second=1, burst=1)
    rack = ScriptedRack(BUSY, BUSY, GOOD)
    async with rack.client(bucket=bucket) as one, rack.client(bucket=bucket) as other:
        await one.instance_view(examples.instance_id(1))
        await other.instance_view(examples.instance_id(1))

    assert [asked.seconds for asked in rack.asked] == pytest.approx([0.0, 1.0, 2.0, 3.0])


@simulated
async def test_cancelling_is_not_an_error() -> None:
    """Whoever cancels a call gets the cancellation, at once, and nothing is sent afterwards."""
    for reply in (Reply(delay_seconds=1000), refusal(503, headers={"retry-after": "20"})):
        rack = ScriptedRack(reply)
        async with rack.client(deadline_seconds=60) as oxide:
            call = asyncio.create_task(oxide.ping())
            await asyncio.sleep(1)
            call.cancel()
            await asyncio.wait([call])
            await asyncio.sleep(100)

        assert call.cancelled()
        assert len(rack.asked) == 1


@simulated
async def test_a_callers_own_deadline_is_its_own() -> None:
    """A shorter timeout around the call ends it as a TimeoutError of the caller, not as one of ours."""
    async with ScriptedRack(Reply(delay_seconds=1000)).client() as oxide:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await oxide.ping()

    assert seconds() == 5.0


@simulated
async def test_a_redirect_is_not_followed() -> None:
    """The token goes to the rack and to nobody whom an answer names."""
    rack = ScriptedRack(Reply(status=307, headers={"location": "http://rack.example/v1/elsewhere"}), GOOD)
    async with rack.client() as oxide:
        with pytest.raises(errors.ResponseError, match=r"redirect to rack\.example"):
            await oxide.ping()

    assert [asked.path for asked in rack.asked] == ["/v1/ping"]


@simulated
async def test_an_answer_has_a_limit() -> None:
    """A server cannot fill our memory, with an answer or with an error."""
    for status in (200, 500):
        rack = ScriptedRack(Reply(status=status, body=b" " * (client.ANSWER_LIMIT_BYTES + 1)))
        async with rack.client(deadline_seconds=0.2) as oxide:
            with pytest.raises(errors.ResponseError, match="longer than 33554432 bytes"):
                await oxide.ping()


@simulated
async def test_a_compressed_answer_is_refused() -> None:
    """None was asked for, and a small one could unpack into anything."""
    rack = ScriptedRack(Reply(body=b"\x1f\x8b", headers={"content-encoding": "gzip"}))
    async with rack.client() as oxide:
        with pytest.raises(errors.ResponseError, match="content coding gzip"):
            await oxide.ping()


def _leaves(kind: type[Exception]) -> set[type[Exception]]:
    children = kind.__subclasses__()
    return {kind}.union(*(_leaves(child) for child in children)) if children else {kind}


# What the library below can raise while a request is under way, and whether the request may have been sent by then.
FAILURES: dict[type[Exception], bool] = {
    httpx.ConnectError: False,
    httpx.ConnectTimeout: False,
    httpx.PoolTimeout: False,
    httpx.ProxyError: False,
    httpx.UnsupportedProtocol: False,
    httpx.LocalProtocolError: False,
    httpx.RemoteProtocolError: True,
    httpx.ReadError: True,
    httpx.ReadTimeout: True,
    httpx.WriteError: True,
    httpx.WriteTimeout: True,
    httpx.CloseError: True,
    ConnectionResetError: True,
    OSError: True,
}
ABSTRACT = {httpx.TransportError, httpx.TimeoutException, httpx.NetworkError, httpx.ProtocolError}


def test_every_error_of_the_library_below_is_known() -> None:
    """A new kind of failure down there must be sorted before it can reach a caller."""
    assert _leaves(httpx.TransportError) - ABSTRACT == {kind for kind in FAILURES if issubclass(kind, httpx.HTTPError)}


@pytest.mark.parametrize(("kind", "may_have_been_sent"), FAILURES.items())
def test_a_failure_of_the_connection_says_whether_it_may_have_happened(
    kind: type[Exception],
    may_have_been_sent: bool,
) -> None:
    """For a write it matters whether anything left; a read has nothing to carry out and is repeated."""

    @simulated
    async def fail() -> None:
        """Write and read over a connection that fails."""
        rack = ScriptedRack(Reply(fails=kind("cut")))
        async with rack.client() as oxide:
            with pytest.raises(errors.TransportError) as written:
                await oxide.instance_delete("machine-1", project="demo")
            with pytest.raises(errors.TransportError) as read:
                await oxide.ping()

        assert written.value.outcome_unknown is may_have_been_sent
        assert not read.value.outcome_unknown
        assert len(rack.asked) == 1 + client.READ_ATTEMPTS
        assert isinstance(read.value.__cause__, kind)

    fail()


@simulated
async def test_the_log_has_the_request_ids_and_no_secrets(captured_logs: list[MutableMapping[str, Any]]) -> None:
    """Every call is found again on the rack; token and bodies are in no line."""
    rack = ScriptedRack(BUSY, GOOD, Reply(status=201, body=examples.instance()))
    async with rack.client(randomness=_Longest()) as oxide:
        await oxide.instance_view("machine-1", project="demo")
        await oxide.instance_create(_create_body(), project="demo")

    assert [(line["event"], line["operation"], line.get("status"), line["requestID"]) for line in captured_logs] == [
        ("Called the rack", "instance_view", 503, REQUEST_ID),
        ("Repeating a read", "instance_view", None, REQUEST_ID),
        ("Called the rack", "instance_view", 200, REQUEST_ID),
        ("Called the rack", "instance_create", 201, REQUEST_ID),
    ]
    for secret in (TOKEN, "secret join token", "YSB2ZXJ5IHNlY3JldCBqb2luIHRva2Vu", "machine-1"):
        assert secret not in repr(captured_logs)


@simulated
async def test_nothing_about_a_client_shows_its_token() -> None:
    """Neither the client, nor what it holds, nor an error it raises."""
    rack = ScriptedRack(refusal(401, "Unauthorized", "credentials missing or invalid"))
    async with rack.client() as oxide:
        with pytest.raises(errors.Unauthorized) as caught:
            await oxide.current_user_view()

        for shown in (repr(oxide), repr(vars(oxide)), str(caught.value), repr(caught.value), repr(vars(caught.value))):
            assert TOKEN not in shown


@pytest.mark.parametrize("token", ["", "  ", "two words", "line\nbreak", "line\r\nx-evil: 1", "ümlaut", "nul\0"])
def test_a_token_that_cannot_be_sent_is_refused_without_repeating_it(token: str) -> None:
    """The library below would put the whole header into its message; here nobody sees it."""
    with pytest.raises(ValueError, match="the token is empty or has a character") as caught:
        OxideClient(host="rack.example", token=SecretStr(token))

    assert not token.strip() or token not in str(caught.value)


@simulated
async def test_a_token_may_end_in_the_newline_of_its_file() -> None:
    """Secrets are often made from files."""
    rack = ScriptedRack(Reply(body={"status": "ok"}))
    async with rack.client(token=SecretStr(f"{TOKEN}\n")) as oxide:
        await oxide.ping()

    assert rack.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "ca", ["", "not a certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_refused(ca: str) -> None:
    """A wrong CA is refused when it is given, not by every connection later, and never means the public ones."""
    with pytest.raises(ValueError, match="the CA is not a bundle of PEM certificates"):
        OxideClient(host="rack.example", token=SecretStr(TOKEN), ca=ca)


@simulated
async def test_a_parameter_that_fits_into_no_address_is_the_callers_mistake() -> None:
    """It is a ValueError, and not one that repeats it."""
    async with ScriptedRack(GOOD).client() as oxide:
        with pytest.raises(ValueError, match="a parameter is too long") as caught:
            await oxide.instance_list(project="p" * 70_000).all()

    assert len(str(caught.value)) < 200
