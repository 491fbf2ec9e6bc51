"""A question to a process on this computer, over HTTPS with a certificate that nobody vouches for."""

from __future__ import annotations

import http.client
import ssl


def ask(port: int, path: str, token: str | None = None) -> tuple[int, str]:
    """Ask with GET; status 0 when nobody answers.

    Args:
        port: where the process listens.
        path: what is asked for.
        token: a bearer token, if any.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()
