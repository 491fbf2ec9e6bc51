"""The rules of the house hold in this tree, and each of them notices a planted mistake."""

from __future__ import annotations

import functools
import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import house, markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
# Another project's document: held to its own rules.
FOREIGN = "capox/rack/openapi/"


@functools.cache
def _tree() -> list[str]:
    """Every file of the tree that is or could be committed; needs the clone, not only its files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for path in set(listing.split("\0")) - {""} if (ROOT / path).is_file())


def _modules() -> list[tuple[str, str]]:
    """Our Python modules and their texts."""
    roots = ("capox/", "hack/", "tests/")
    return [(path, _text(path)) for path in _tree() if path.endswith(".py") and path.startswith(roots)]


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _readable() -> Iterator[tuple[str, str]]:
    """Our own files that are text."""
    for path in _tree():
        if path.startswith(FOREIGN):
            continue
        try:
            yield path, _text(path)
        except UnicodeDecodeError:
            continue


def _read(path: str) -> str | None:
    """What a link can lead to."""
    there = ROOT / path
    if there.is_dir():
        return ""
    return there.read_text(encoding="utf-8") if there.is_file() else None


def _dotted(path: str) -> str:
    """The name under which a module is imported."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _expect_none(findings: list[str]) -> None:
    """Fail with every finding on a line of its own."""
    assert not findings, "\n" + "\n".join(findings)


def _project() -> dict[str, Any]:
    return tomllib.loads(_text("pyproject.toml"))


@pytest.mark.parametrize(
    "rule",
    [
        house.environment_readers,
        house.shapeless_names,
        house.lengths,
        house.imports_of_tests,
        house.foreign_packages,
        house.rack_imports,
    ],
)
def test_modules_keep_the_rule(rule: Callable[[str, str], list[str]]) -> None:
    """No module of the tree breaks it."""
    modules = _modules()

    assert modules
    _expect_none([finding for path, text in modules for finding in rule(path, text)])


def test_pure_modules_only_compute() -> None:
    """Plans, placement, wire models and API kinds neither await nor import what awaits."""
    modules = _modules()
    awaiting = {_dotted(path) for path, text in modules if path.startswith("capox/") and house.awaits(path, text)}

    _expect_none([finding for path, text in modules for finding in house.impurity(path, text, awaiting)])


@pytest.mark.parametrize("rule", [house.registry_hosts, house.unfinished])
def test_texts_keep_the_rule(rule: Callable[[str, str], list[str]]) -> None:
    """No file of ours breaks it, whatever its language."""
    _expect_none([finding for path, text in _readable() for finding in rule(path, text)])


def test_links_of_pages_lead_somewhere() -> None:
    """Whoever follows a link of the documentation arrives."""
    pages = [(path, text) for path, text in _readable() if path.endswith(".md")]

    assert pages
    _expect_none([finding for path, text in pages for finding in markdown.broken_links(path, text, _read)])


def test_readme_names_the_two_commands() -> None:
    """A newcomer finds what to type on the first page."""
    assert {"make demo", "make test"} <= set(re.findall(r"make [\w-]+", _text("README.md")))


PLANTED: list[tuple[Callable[[str, str], list[str]], str, str]] = [
    (house.environment_readers, "capox/oxide/client.py", "import os\nTOKEN = os.environ['OXIDE_TOKEN']\n"),
    (house.environment_readers, "capox/__main__.py", "import os\nos.getenv('HOME')\n"),
    (house.environment_readers, "capox/rack/app.py", "from os import environ\n"),
    (house.shapeless_names, "capox/kube/utils.py", ""),
    (house.shapeless_names, "capox/helpers/names.py", ""),
    (house.shapeless_names, "tests/common/rack.py", ""),
    (house.shapeless_names, "capox/oxide/client_base.py", ""),
    (house.lengths, "capox/kube/objects.py", "\n" * (house.MODULE_LINES_MAX + 1)),
    (house.lengths, "tests/unit/test_long.py", "\n" * (house.MODULE_LINES_MAX + 1)),
    (house.lengths, "capox/kube/objects.py", "def long():\n" + "    pass\n" * house.FUNCTION_LINES_MAX),
    (house.lengths, "hack/demo.py", "class Demo:\n  async def run(self):\n" + "    pass\n" * house.FUNCTION_LINES_MAX),
    (house.imports_of_tests, "capox/kube/client.py", "from tests.builders import cluster\n"),
    (house.imports_of_tests, "hack/demo.py", "def run():\n    import tests\n"),
    (house.foreign_packages, "capox/oxide/inventory.py", "import httpx\n"),
    (house.foreign_packages, "capox/provider/main.py", "from kopf import on\n"),
    (house.foreign_packages, "capox/kube/workqueue.py", "def f():\n    import kubernetes.client\n"),
    (house.foreign_packages, "capox/provider/machine.py", "import starlette.applications\n"),
    (house.foreign_packages, "capox/rack/app.py", "import requests\n"),
    (house.rack_imports, "capox/rack/app.py", "from capox.provider_id import parse\n"),
    (house.rack_imports, "capox/rack/app.py", "from capox import __version__\n"),
    (house.rack_imports, "capox/rack/guests/nothing.py", "import capox\n"),
    (house.rack_imports, "capox/rack/app.py", "from .. import oxide\n"),
    (
        house.registry_hosts,
        "docs/how-to/install.md",
        "pip install -i https://{}.{}/simple capox\n".format("pypi", "org"),
    ),
    (house.registry_hosts, "Makefile", "GOPROXY=https://proxy.golang.{}\n".format("org")),
    (house.unfinished, "capox/kube/lease.py", "# {}: renew\n".format("TO" + "DO")),
    (house.unfinished, "hack/tools/main.go", "// {} later\n".format("FIX" + "ME")),
]
"""Rule, path, and a text that breaks it there."""

ALLOWED: list[tuple[Callable[[str, str], list[str]], str, str]] = [
    (house.environment_readers, "capox/settings.py", "import os\nTOKEN = os.environ['OXIDE_TOKEN']\n"),
    (house.environment_readers, "hack/demo.py", "import os\nos.getenv('HOME')\n"),
    (house.environment_readers, "capox/rack/app.py", "import os\nos.getpid()\n"),
    (house.shapeless_names, "capox/rack/database.py", ""),
    (house.lengths, "capox/kube/objects.py", "\n" * house.MODULE_LINES_MAX),
    (house.lengths, "capox/kube/objects.py", "def short():\n" + "    pass\n" * (house.FUNCTION_LINES_MAX - 1)),
    (house.lengths, "capox/a.py", 'def told():\n    """' + "\n" * house.FUNCTION_LINES_MAX + '    """\n'),
    (house.lengths, "tests/unit/test_story.py", "def story():\n" + "    pass\n" * house.FUNCTION_LINES_MAX),
    (house.imports_of_tests, "tests/unit/test_house.py", "from tests import house\n"),
    (house.foreign_packages, "capox/oxide/client.py", "import httpx\n"),
    (house.foreign_packages, "capox/rack/routes/disks.py", "from starlette.routing import Route\n"),
    (house.foreign_packages, "capox/api/v1alpha1.py", "import json\nfrom pydantic import Field\nfrom . import capi\n"),
    (house.foreign_packages, "tests/contract/test_rack.py", "import httpx\n"),
    (
        house.rack_imports,
        "capox/rack/app.py",
        "from capox import rack\nfrom capox.rack.state import Rack\nfrom . import json\n",
    ),
    (house.rack_imports, "capox/__main__.py", "from capox.rack import main\n"),
    (house.registry_hosts, "README.md", "https://go.dev/doc/install and https://kubernetes.io\n"),
    (house.unfinished, "Makefile", "mktemp /tmp/capox." + "X" * 6 + "\n"),
]
"""Rule, path, and a text that looks like a mistake and is none."""


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_rules_bite(rule: Callable[[str, str], list[str]], path: str, text: str) -> None:
    """Each rule names the path and line of a planted mistake."""
    findings = rule(path, text)

    assert findings
    assert all(re.match(rf"{re.escape(path)}:\d+: .", finding) for finding in findings)


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_rules_let_good_code_be(rule: Callable[[str, str], list[str]], path: str, text: str) -> None:
    """What only looks like a mistake is left alone."""
    assert rule(path, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "async def plan(): ...\n",
        "import asyncio\n",
        "import asyncio.tasks\n",
        "from httpx import Client\n",
        "from capox.oxide import client\n",
        "from capox.oxide.client import OxideClient\n",
    ],
)
@pytest.mark.parametrize("path", ["capox/provider/machine_plan.py", "capox/ccm/placement.py", "capox/api/capi.py"])
def test_purity_bites(path: str, text: str) -> None:
    """A pure module is refused async code, packages that await, and modules of ours that await."""
    assert house.impurity(path, text, {"capox.oxide.client"})


def test_purity_asks_only_pure_modules() -> None:
    """What performs the plan may await, and a plan may import what only computes."""
    assert house.impurity("capox/provider/machine.py", "import asyncio\n", set()) == []
    assert house.impurity("capox/api/v1alpha1.py", "from capox.kube.objects import Resource\n", {"capox.kube"}) == []


@pytest.mark.parametrize("path", ["capox/oxide/models.py", "capox/provider/cluster_plan.py", "capox/api/crdgen.py"])
def test_pure_modules_are_known(path: str) -> None:
    """The rule covers the modules that the design calls pure."""
    assert house.is_pure(path)


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[plan](../explanation/nowhere.md)", True),
        ("[plan](../explanation/design.md#no-such-heading)", True),
        ("[below](#no-such-heading)", True),
        ("[plan](../explanation/design.md#who-may-import-whom)", False),
        ("# Here we are\n[here](#here-we-are) [folder](../) [site](https://oxide.computer/x#y)", False),
        ("`[code](nowhere.md)`\n```\n[code](nowhere.md)\n```\n", False),
    ],
)
def test_broken_links_are_found(text: str, *, broken: bool) -> None:
    """A link to a missing file or heading is found; other sites and code are not looked at."""
    pages = {"docs/explanation/design.md": "# Design\n\n## Who may import whom\n", "docs": ""}

    assert bool(markdown.broken_links("docs/how-to/page.md", text, pages.get)) is broken


def test_contracts_know_every_owner() -> None:
    """import-linter and the table of owners name the same modules for the same packages."""
    contracts = _project()["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each.get("source_modules") == ["capox"]]
    allowed: dict[str, set[str]] = {}
    for exception in contract["ignore_imports"]:
        owner, package = exception.split(" -> ")
        allowed.setdefault(package, set()).add(re.sub(r"^\*", "capox", owner).removesuffix(".**"))

    table = {package: {_dotted(owner.rstrip("/")) for owner in owners} for package, owners in house.OWNERS.items()}
    assert set(contract["forbidden_modules"]) == set(table)
    assert allowed == table


def test_lock_pins_every_dependency() -> None:
    """What pyproject.toml asks for is pinned in requirements/dev.lock in a version that satisfies it."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", _text("requirements/dev.lock"), re.MULTILINE))
    project = _project()["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name != "capox":
            assert name in pins, f"{name} is not locked; run make lock"
            assert requirement.specifier.contains(pins[name], prereleases=True), f"{name} {pins[name]}; run make lock"


def test_minimum_versions_are_said_alike() -> None:
    """pyproject.toml, Makefile, CI and README agree on the oldest Python and Go."""
    python = _project()["project"]["requires-python"].removeprefix(">=")
    places = {path: _text(path) for path in ("Makefile", ".ci/run")}
    for path, text in places.items():
        assert re.search(rf"^PYTHON_MINIMUM ?:?= ?{re.escape(python)}$", text, re.MULTILINE), path
    go = {match for text in places.values() for match in re.findall(r"^GO_MINIMUM ?:?= ?([\d.]+)$", text, re.MULTILINE)}

    assert len(go) == 1
    assert f"Python {python}" in _text("README.md")
    assert f"Go {go.pop()}" in _text("README.md")
