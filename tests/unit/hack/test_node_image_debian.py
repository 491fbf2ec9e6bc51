"""Where the Debian below a node image comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.nodeimage.debian import mirror_of_this_computer, parse_mirror

DEB822 = """Types: deb
# http://old.example.com/debian
URIs: http://mirror.example.com/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example.com/debian-security
Suites: bookworm-security
"""


@pytest.mark.parametrize(
    ("text", "mirror"),
    [
        (DEB822, "http://mirror.example.com/debian"),
        ("deb http://a.example.com/debian/ bookworm main\n", "http://a.example.com/debian"),
        (
            "# deb http://b.example.com/debian sid main\ndeb [arch=amd64] http://a.example.com/debian stable main\n",
            "http://a.example.com/debian",
        ),
        ("deb https://a.example.com/apt other main\n", None),
        ("", None),
    ],
    ids=["deb822", "one line", "options", "another archive", "empty"],
)
def test_the_mirror_of_the_main_archive_is_found(text: str, mirror: str | None) -> None:
    """In either format, and never the security archive or somebody else's repository."""
    assert parse_mirror(text) == mirror


def test_only_a_debian_has_a_mirror_for_us(tmp_path: Path) -> None:
    """Ubuntu's mirror has no Debian."""
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / "sources.list.d" / "debian.sources").write_text(DEB822)
    assert mirror_of_this_computer(tmp_path) is None
    (tmp_path / "os-release").write_text("NAME=x\nID=ubuntu\n")
    assert mirror_of_this_computer(tmp_path) is None

    (tmp_path / "os-release").write_text("NAME=x\nID=debian\n")
    assert mirror_of_this_computer(tmp_path) == "http://mirror.example.com/debian"
    (apt / "sources.list.d" / "debian.sources").unlink()
    assert mirror_of_this_computer(tmp_path) is None
