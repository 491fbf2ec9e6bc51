"""The rack that this cluster's instances live on: one project, seen with the credentials as they are now.

`Rack.project` gives the project only after the rack has shown it with these very credentials, so whoever has a
`Project` may conclude something from what is not in it (L1, L2). Credentials may change at any time; then the project
is looked at anew, and only the same silo and project of the same rack go on under the same `identity`.

Every write of a project's client asks for the Lease first (R1).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Final, Protocol, TypeVar
from uuid import UUID

import structlog

from capox.ccm.credentials import Credentials, CredentialsError
from capox.ccm.leading import NotLeadingError
from capox.oxide.client import OxideClient
from capox.oxide.clock import Clock
from capox.oxide.errors import NotVisible, ObjectNotFound, OxideError, TransportError, Unauthorized
from capox.oxide.inventory import ProjectInventory
from capox.oxide.models.wire import WriteModel
from capox.oxide.operation import Operation, Parameter
from capox.oxide.operations import Operations
from capox.oxide.token_bucket import TokenBucket

__all__ = ["FLOATING_IPS_REST_SECONDS", "CallCounter", "Project", "Rack", "RackClient"]

AnswerT = TypeVar("AnswerT")

DEADLINE_SECONDS: Final = 30.0
"""How long any call of the rack may take (S16)."""

FLOATING_IPS_REST_SECONDS: Final = 60.0
"""How old the list of floating IPs may be at rest. They change when we change them; with the instances every half a
minute, and what is looked up now and then, four calls a minute are not exceeded."""

RETRY_SECONDS: Final = 5.0
"""How long a failed look at the project stands for everybody, so that waiting workers do not ask one by one."""

REFUSED_RETRY_SECONDS: Final = 60.0
"""How long credentials that the rack refused are left alone, unless they change (S23)."""

RETIRED_SECONDS: Final = 2 * DEADLINE_SECONDS
"""How long a client whose credentials were replaced stays open for the work that has begun with it."""


class CallCounter(Protocol):
    """Where calls of the rack are counted."""

    def on_call(self, operation: str, result: str, seconds: float) -> None:
        """A call has ended: `success`, or the name of its error's class."""
        ...


class RackClient(Operations):
    """The rack's operations, every write under the Lease.

    Args:
        client: What carries the calls.
        clock: For how long they take.
        is_leading: Whether the Lease is ours at this moment.
        counter: Where calls are counted; None counts nothing.

    Attributes:
        origin: The rack's address in its one form.
        is_refused: Whether the rack has refused the credentials.
    """

    def __init__(
        self,
        client: OxideClient,
        clock: Clock,
        is_leading: Callable[[], bool],
        counter: CallCounter | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._is_leading = is_leading
        self._counter = counter
        self._is_closed = False
        self.origin = client.origin
        self.is_refused = False

    async def call(
        self, operation: Operation[AnswerT], *, body: WriteModel | None = None, **parameters: Parameter
    ) -> AnswerT:
        """Carry out one operation.

        Raises:
            NotLeadingError: It is a write, and the Lease is not surely ours; nothing was sent.
            OxideError: It failed.
        """
        if not operation.is_read and not self._is_leading():
            raise NotLeadingError(f"{operation.operation_id}: the Lease is not surely ours")
        if self._is_closed:
            message = "the credentials of this client were replaced"
            raise TransportError(message, operation=operation.operation_id, outcome_unknown=False)
        began, result = self._clock.monotonic(), "success"
        try:
            return await self._client.call(operation, body=body, **parameters)
        except Exception as error:
            self.is_refused = self.is_refused or isinstance(error, Unauthorized)
            result = type(error).__name__
            raise
        finally:
            if self._counter is not None:
                self._counter.on_call(operation.operation_id, result, self._clock.monotonic() - began)

    async def aclose(self) -> None:
        """Close the connections; later calls fail as if the rack could not be reached."""
        self._is_closed = True
        await self._client.aclose()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The project, as the rack has shown it with the present credentials.

    Attributes:
        client: The rack's operations with these credentials.
        inventory: The shared lists of the project.
        id: The project's id, for every call that wants a project.
        name: Its name.
        silo_id: The silo that the credentials belong to.
        silo_name: Its name.
    """

    client: RackClient
    inventory: ProjectInventory
    id: UUID
    name: str
    silo_id: UUID
    silo_name: str

    @property
    def identity(self) -> tuple[str, UUID, UUID]:
        """Rack, silo and project. What was found out in another one is worth nothing here."""
        return self.client.origin, self.silo_id, self.id


class Rack:
    """The source of the project.

    Args:
        read: Gives the credentials as they are now.
        clock: The time that everything goes by.
        is_leading: Whether the Lease is ours at this moment.
        bucket: Bounds the requests; None bounds nothing.
        connect: Makes a client; another one for tests that run within one process.
        counter: Where calls are counted.
    """

    def __init__(
        self,
        read: Callable[[], Credentials],
        clock: Clock,
        *,
        is_leading: Callable[[], bool],
        bucket: TokenBucket | None = None,
        connect: Callable[[Credentials], OxideClient] | None = None,
        counter: CallCounter | None = None,
    ) -> None:
        self._read = read
        self._clock = clock
        self._is_leading = is_leading
        self._bucket = bucket
        self._connect = connect or self._connect_to
        self._counter = counter
        self._credentials: Credentials | None = None
        self._client: RackClient | None = None
        self._project: Project | None = None
        self._looking = asyncio.Lock()
        self._failed: tuple[Exception, float] | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    @property
    def trouble(self) -> str | None:
        """Why there is no project to work in just now, in words for people; None when all is well or not yet tried."""
        if self._failed is not None:
            return str(self._failed[0])
        if self._client is not None and self._client.is_refused:
            return "the rack refuses the credentials"
        return None

    @property
    def is_verified(self) -> bool:
        """Whether the project was seen with the present credentials."""
        return self._project is not None and not self._project.client.is_refused

    async def project(self) -> Project:
        """Give the project, looking at it first where the credentials are new or were refused.

        Raises:
            CredentialsError: There are no credentials, or none that can be sent.
            NotVisible: These credentials do not show the project.
            OxideError: The rack did not answer, or refuses the credentials.
        """
        async with self._looking:
            self._take_credentials()
            if self._project is not None and not self._project.client.is_refused:
                return self._project
            if self._failed is not None and self._clock.monotonic() < self._failed[1]:
                raise self._failed[0].with_traceback(None)
            try:
                self._project = await self._look()
            except OxideError as error:
                # Never more than one look a while, however many workers wait (S23).
                pause = REFUSED_RETRY_SECONDS if isinstance(error, Unauthorized | NotVisible) else RETRY_SECONDS
                self._failed = (error, self._clock.monotonic() + pause)
                self._log.warning("The project cannot be worked in", error=str(error), retryAfterSeconds=pause)
                raise
            self._failed = None
            return self._project

    async def aclose(self) -> None:
        """Stop observing and close all connections."""
        for task in tuple(self._retired):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._project is not None:
            await self._project.inventory.aclose()
        if self._client is not None:
            await self._client.aclose()

    def _take_credentials(self) -> None:
        """Have a client with the credentials as they are now.

        Raises:
            CredentialsError: There are none, or none that can be sent.
        """
        try:
            credentials = self._read()
            if credentials == self._credentials and self._client is not None:
                return
            client = self._connect(credentials)
        except ValueError as error:
            self._failed = (CredentialsError(str(error)), self._clock.monotonic())
            raise self._failed[0] from None
        except CredentialsError as error:
            self._failed = (error, self._clock.monotonic())
            raise
        if self._client is not None:
            self._log.info("Taking new credentials")
            self._retire(self._client, self._project)
        self._credentials, self._failed = credentials, None
        self._client = RackClient(client, self._clock, self._is_leading, self._counter)
        self._project = None

    async def _look(self) -> Project:
        """Look at the project with the present credentials."""
        client, credentials = self._client, self._credentials
        assert client is not None
        assert credentials is not None
        client.is_refused = False
        user = await client.current_user_view()
        try:
            found = await client.project_view(credentials.project)
        except ObjectNotFound as error:
            raise NotVisible(error.message, operation=error.operation, request_id=error.request_id) from error
        self._log.info("Working in a project", silo=user.silo_name, project=found.name, rack=client.origin)
        return Project(
            client=client,
            inventory=ProjectInventory(client, found.id, clock=self._clock),
            id=found.id,
            name=found.name,
            silo_id=user.silo_id,
            silo_name=user.silo_name,
        )

    def _retire(self, client: RackClient, project: Project | None) -> None:
        """Close a client once the work that has begun with it has ended."""

        async def close() -> None:
            try:
                await self._clock.sleep(RETIRED_SECONDS)
            finally:
                if project is not None:
                    await project.inventory.aclose()
                await client.aclose()

        task = asyncio.get_running_loop().create_task(close())
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    def _connect_to(self, credentials: Credentials) -> OxideClient:
        return OxideClient(
            host=credentials.host,
            token=credentials.token,
            ca=credentials.ca,
            bucket=self._bucket,
            clock=self._clock,
            deadline_seconds=DEADLINE_SECONDS,
            write_deadline_seconds=DEADLINE_SECONDS,
        )
