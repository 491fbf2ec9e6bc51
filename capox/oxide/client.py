"""The client of a rack: how its operations travel. The only module that knows the HTTP library.

One `OxideClient` is one set of credentials on one rack. Its methods are the operations of the specification, under
their own names; they are written down in `capox.oxide.operations` and all end here, in `OxideClient.call`.

- The api-version is fixed to what Oxide's own Go SDK sends: a rack refuses a version newer than its own, and a newer
  rack keeps the forms that our models have.
- Reads are repeated when the failure may pass by itself; writes never are. Whoever writes looks at the world again
  before the next step, which settles a lost answer, a duplicate and a crash alike.
- A deadline spans a whole call: the wait for the rack's token bucket, every attempt, every pause.
- Redirects are not followed: a token must not travel to whoever an answer names. The environment is not read, so there
  is no proxy and no `.netrc`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import ssl
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Final, Self, TypeVar

import httpx
import structlog

from capox.oxide.answer import Answer, read_answer
from capox.oxide.clock import Clock, LoopClock
from capox.oxide.errors import APIError, OxideError, ResponseError, TransportError
from capox.oxide.operations import Operations
from capox.oxide.origin import parse_origin

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic import SecretStr

    from capox.oxide.models.wire import WriteModel
    from capox.oxide.operation import Operation, Parameter
    from capox.oxide.token_bucket import TokenBucket

AnswerT = TypeVar("AnswerT")

API_VERSION: Final = "2026060800.0.0"
"""The version of the rack's API that the models describe (semantics 1.2)."""

READ_DEADLINE_SECONDS: Final = 30.0
"""A page of 1000 instances takes a fraction of it; a rack that needs longer is overloaded."""

WRITE_DEADLINE_SECONDS: Final = 120.0
"""Creating takes up to 40 s, and a sled out of reach 60 s until the rack says so (semantics 10)."""

CONNECT_SECONDS: Final = 10.0
"""For making a connection, and for one to become free, at most; never more than half of a deadline.

So these two end before the deadline does, and it is known that nothing was sent.
"""

READ_ATTEMPTS: Final = 4
"""Attempts of a read, the first included."""

BACKOFF_FIRST_SECONDS: Final = 0.25
"""The longest pause before the second attempt; it doubles each time."""

BACKOFF_LIMIT_SECONDS: Final = 5.0
"""The longest pause that is our own choice."""

KEEP_ALIVE_SECONDS: Final = 20.0
"""An idle connection is given up before a load balancer forgets it silently."""

CONNECTIONS_LIMIT: Final = 32
"""Connections of one client."""

ANSWER_LIMIT_BYTES: Final = 32 * 2**20
"""A page of 10,000 instances has about 8 MiB."""

# What the library below raises while nothing has been sent yet, and what it raises later. A test walks its whole tree.
_NOTHING_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
)
_PERHAPS_SENT: Final = (
    httpx.ReadError,
    httpx.ReadTimeout,
    httpx.WriteError,
    httpx.WriteTimeout,
    httpx.CloseError,
    httpx.RemoteProtocolError,
    OSError,
)

_log = structlog.get_logger(__name__)


class OxideClient(Operations):
    """A rack's API with one set of credentials; an async context manager that keeps its connections.

    Every method raises `OxideError` of `capox.oxide.errors`, and `ValueError` for an argument that must not be sent.
    """

    def __init__(
        self,
        *,
        host: str,
        token: SecretStr,
        ca: str | None = None,
        deadline_seconds: float = READ_DEADLINE_SECONDS,
        write_deadline_seconds: float = WRITE_DEADLINE_SECONDS,
        bucket: TokenBucket | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            host: The rack's address; see `capox.oxide.origin.parse_origin`.
            token: The credentials. Blanks around it, as a file's last newline, are dropped.
            ca: PEM certificates to trust instead of the public ones, for a rack with a private authority.
            deadline_seconds: For one read, its repetitions included; for a list, for each page.
            write_deadline_seconds: For one write.
            bucket: The rack's token bucket, shared by all its clients; none when absent.
            transport: What carries the requests, instead of sockets.
            clock: For the pauses between attempts; the event loop's when absent.
            randomness: For the length of the pauses.

        Raises:
            ValueError: The host is no address, the token cannot be sent, or the CA is no certificate. No message
                repeats the token.
        """
        self._origin = parse_origin(host)
        self._read_deadline_seconds = deadline_seconds
        self._write_deadline_seconds = write_deadline_seconds
        self._bucket = bucket
        self._clock = clock or LoopClock()
        # Pauses only have to differ; nobody gains by guessing them.
        self._random = randomness or random.Random()  # noqa: S311
        connect_seconds = min(CONNECT_SECONDS, deadline_seconds / 2, write_deadline_seconds / 2)
        self._slots = asyncio.Semaphore(CONNECTIONS_LIMIT)
        self._http = httpx.AsyncClient(
            headers=_headers(token),
            verify=_ssl_context(ca) if ca is not None else True,
            timeout=httpx.Timeout(None, connect=connect_seconds, pool=connect_seconds),
            limits=httpx.Limits(
                # Not limited here: requests that are cancelled while they queue in the library below leave it stuck.
                max_connections=None,
                max_keepalive_connections=CONNECTIONS_LIMIT,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
            transport=transport,
            follow_redirects=False,
            trust_env=False,
        )

    @property
    def origin(self) -> str:
        """The rack's address in its one form."""
        return self._origin

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, and cannot be used any more."""
        return self._http.is_closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. The client cannot be used afterwards."""
        await self._http.aclose()

    async def call(
        self, operation: Operation[AnswerT], *, body: WriteModel | None = None, **parameters: Parameter
    ) -> AnswerT:
        """Carry out one operation.

        Args:
            operation: What to do.
            body: The request's body, for the operations that have one.
            **parameters: The parameters of its path and query.

        Returns:
            What the operation answers.

        Raises:
            OxideError: It failed; see `capox.oxide.errors`.
            ValueError: An argument must not be sent.
        """
        request = self._request(operation, body, parameters)
        seconds = self._read_deadline_seconds if operation.is_read else self._write_deadline_seconds
        progress = _Progress(deadline=self._clock.monotonic() + seconds)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(operation, request, progress)
        except TimeoutError as error:
            raise TransportError(
                f"no answer within {seconds:g} s" if progress.sent else f"could not be sent within {seconds:g} s",
                operation=operation.operation_id,
                outcome_unknown=progress.sent and not operation.is_read,
            ) from (progress.last_error or error)
        return answer

    def _request(
        self, operation: Operation[AnswerT], body: WriteModel | None, parameters: dict[str, Parameter]
    ) -> httpx.Request:
        path, query = operation.target(parameters)
        try:
            return self._http.build_request(
                operation.verb,
                f"{self._origin}{path}",
                params=query,
                content=body.wire_bytes() if body is not None else None,
                headers={"content-type": "application/json"} if body is not None else None,
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"{operation.operation_id}: a parameter is too long to be sent") from error

    async def _answer(self, operation: Operation[AnswerT], request: httpx.Request, progress: _Progress) -> AnswerT:
        """Ask until there is an answer, or an error that repeating does not help."""
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                async with self._slots:
                    if self._bucket is not None:
                        await self._bucket.acquire()
                    progress.sent = True
                    return read_answer(operation, await self._exchange(operation, request))
            except OxideError as error:
                pause = self._pause_seconds(error, attempt)
                # Not begun when the deadline would end it: what is known now says more than that time ran out.
                in_time = self._clock.monotonic() + pause < progress.deadline
                if not (operation.is_read and error.retryable and in_time and attempt < READ_ATTEMPTS):
                    raise
                progress.last_error = error
            _log.info(
                "Repeating a read",
                operation=operation.operation_id,
                attempt=attempt,
                pauseSeconds=round(pause, 3),
                requestID=progress.last_error.request_id,
                error=str(progress.last_error),
            )
            await self._clock.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _pause_seconds(self, error: OxideError, attempt: int) -> float:
        """Choose a pause: random up to a limit that doubles, and never shorter than what the server asked for."""
        limit = min(BACKOFF_LIMIT_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** (attempt - 1))
        asked = error.retry_after_seconds if isinstance(error, APIError | ResponseError) else None
        return max(self._random.uniform(0, limit), asked or 0.0)

    async def _exchange(self, operation: Operation[AnswerT], request: httpx.Request) -> Answer:
        """Send a request once and receive the whole answer."""
        began = self._clock.monotonic()
        answer = None
        try:
            response = await self._http.send(request, stream=True)
            try:
                answer = await _receive(operation, response)
            finally:
                await response.aclose()
        except (*_NOTHING_SENT, *_PERHAPS_SENT) as error:
            raise TransportError(
                _describe(error),
                operation=operation.operation_id,
                outcome_unknown=not operation.is_read and not isinstance(error, _NOTHING_SENT),
            ) from error
        finally:
            _log.debug(
                "Called the rack",
                operation=operation.operation_id,
                status=answer.status if answer is not None else None,
                requestID=answer.request_id if answer is not None else None,
                seconds=round(self._clock.monotonic() - began, 3),
            )
        return answer


@dataclass(slots=True)
class _Progress:
    """How far a call has come: what is to be said when its deadline ends it.

    Attributes:
        deadline: The clock's time at which it will end.
        sent: Whether a request may have left.
        last_error: Why the attempt before this one failed.
    """

    deadline: float
    sent: bool = False
    last_error: OxideError | None = None


async def _receive(operation: Operation[AnswerT], response: httpx.Response) -> Answer:
    """Read a body piece by piece, up to the limit, whatever length it claims."""
    head = Answer(status=response.status_code, headers=dict(response.headers), body=b"")
    coding = response.headers.get("content-encoding", "identity")
    if coding != "identity":
        # None was offered, and one that expands could be far larger than the limit.
        raise _refused(operation, head, f"the answer has the content coding {coding}, which was not asked for")
    pieces, size_bytes = [], 0
    async for piece in response.aiter_bytes():
        size_bytes += len(piece)
        if size_bytes > ANSWER_LIMIT_BYTES:
            raise _refused(operation, head, f"the answer is longer than {ANSWER_LIMIT_BYTES} bytes")
        pieces.append(piece)
    return dataclasses.replace(head, body=b"".join(pieces))


def _refused(operation: Operation[AnswerT], head: Answer, message: str) -> ResponseError:
    return ResponseError(message, operation=operation.operation_id, status=head.status, request_id=head.request_id)


def _describe(error: Exception) -> str:
    """Say what happened to the connection, and what to do where that is known."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the rack's certificate is not trusted ({cause.verify_message}); give the CA that issued it"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _headers(token: SecretStr) -> dict[str, str]:
    secret = token.get_secret_value().strip()
    # Checked here because the library below would put the whole header into its message.
    if not secret or not all("!" <= character <= "~" for character in secret):
        raise ValueError("the token is empty or has a character that no token has; give it as the rack showed it")
    return {
        "authorization": f"Bearer {secret}",
        "api-version": API_VERSION,
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": _user_agent(),
    }


def _user_agent() -> str:
    try:
        return f"capox/{metadata.version('capox')}"
    except metadata.PackageNotFoundError:
        # Run from sources that nobody installed.
        return "capox"


def _ssl_context(ca: str) -> ssl.SSLContext:
    if not ca.strip():
        # Given nothing, the library would trust the public authorities instead.
        raise ValueError("the CA is not a bundle of PEM certificates: it is empty")
    try:
        return ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError("the CA is not a bundle of PEM certificates") from error
