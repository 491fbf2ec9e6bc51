"""A client of an API server that asks `/readyz` ten times a second, come what may: a program of its own.

    python endpoint_asker.py ADDRESS PORT >log

Each question is a connection of its own and one line of the log: when it was begun, when it was over, the status that
was answered (0 is none), and whose certificate was shown, by its hash. It imports nothing of the tests, whose process
is kept on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import ssl
import sys
import time

PERIOD_SECONDS = 0.1
# As patient as kubelets are. Whoever waits so long has not been refused; the log tells how long it was.
DEADLINE_SECONDS = 8.0
_REQUEST = b"GET /readyz HTTP/1.1\r\nHost: endpoint\r\nConnection: close\r\n\r\n"


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # The certificate tells machines apart here, and is compared with nothing else; no secret is sent.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def ask(address: str, port: int, context: ssl.SSLContext) -> tuple[int, str]:
    """Ask once.

    Returns:
        The status, 0 when there was none, and the hash of the certificate, `-` when none was shown.
    """
    shown = "-"
    # A refusal, an end in the middle and the end of the time are the same here: no answer.
    with contextlib.suppress(OSError, EOFError, ValueError, IndexError):
        async with asyncio.timeout(DEADLINE_SECONDS):
            reader, writer = await asyncio.open_connection(address, port, ssl=context)
            try:
                certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                shown = hashlib.sha256(certificate).hexdigest()[:12]
                writer.write(_REQUEST)
                line = await reader.readuntil(b"\r\n")
                return int(line.split()[1]), shown
            finally:
                writer.transport.abort()
    return 0, shown


async def _note(address: str, port: int, context: ssl.SSLContext) -> None:
    """Ask once, and write the line."""
    began = time.time()
    status, shown = await ask(address, port, context)
    sys.stdout.write(f"{began:.3f} {time.time():.3f} {status} {shown}\n")
    # Read while it is written.
    sys.stdout.flush()


async def ask_for_ever(address: str, port: int) -> None:
    """Begin a question each tenth of a second, whether those before have been answered or not, until SIGTERM."""
    loop, context = asyncio.get_running_loop(), _context()
    asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    questions: set[asyncio.Task[None]] = set()
    due = loop.time()
    while not asked.is_set():
        question = asyncio.create_task(_note(address, port, context))
        questions.add(question)
        question.add_done_callback(questions.discard)
        # A computer that was busy is not made busier by what it has missed; the log shows that nobody asked.
        due = max(due + PERIOD_SECONDS, loop.time())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), due - loop.time())
    await asyncio.gather(*questions)


if __name__ == "__main__":
    asyncio.run(ask_for_ever(sys.argv[1], int(sys.argv[2])))
