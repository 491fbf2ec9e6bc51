"""How a user's address of a rack becomes the one that is called and compared."""

from __future__ import annotations

import pytest

from capox.oxide import parse_origin


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("oxide.example.com", "https://oxide.example.com"),
        ("https://oxide.example.com", "https://oxide.example.com"),
        ("https://oxide.example.com/", "https://oxide.example.com"),
        ("  oxide.example.com\n", "https://oxide.example.com"),
        ("HTTPS://Oxide.Example.COM:443", "https://oxide.example.com"),
        ("oxide.example.com:8443", "https://oxide.example.com:8443"),
        ("localhost:12220", "https://localhost:12220"),
        ("http://127.0.0.1:12220", "http://127.0.0.1:12220"),
        ("http://oxide.example.com:80", "http://oxide.example.com"),
        ("https://oxide.example.com:80", "https://oxide.example.com:80"),
        ("http://[::1]:12220", "http://[::1]:12220"),
        ("[fd00:1122::1]", "https://[fd00:1122::1]"),
    ],
)
def test_an_address_means_one_origin(written: str, meant: str) -> None:
    """No scheme means https, http is taken when it is written, and spellings of one address are one."""
    assert parse_origin(written) == meant
    assert parse_origin(meant) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "https://",
        "/",
        "ftp://oxide.example.com",
        "oxide.example.com/v1",
        "https://oxide.example.com?x=1",
        "https://oxide.example.com#x",
        "oxide.example.com:http",
        "oxide.example.com:99999",
        "two words",
        "https://oxide.example.com\nx-injected: 1",
        "https://oxide%2eexample.com",
    ],
)
def test_what_is_no_address_is_refused(written: str) -> None:
    """A wrong address is refused when it is given, with a sentence, not by a failing connection later."""
    with pytest.raises(ValueError, match="the rack's address"):
        parse_origin(written)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    """Whoever puts the token into the address gets no message that holds it."""
    with pytest.raises(ValueError, match="user name or password") as caught:
        parse_origin("https://me:hunter2@oxide.example.com")

    assert "hunter2" not in str(caught.value)
