"""The rules of the house that no tool checks, as pure functions over a file's path and text.

Each rule returns its findings as sentences `path:line: what is wrong; what to do`; an empty list is a clean file.
`tests/unit/test_house.py` runs them over the tree, and shows with planted mistakes that each of them bites.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MODULE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70

OWNERS: dict[str, tuple[str, ...]] = {
    "aiohttp": ("capox/kube/client.py", "capox/kube/remote.py", "capox/kube/serving.py"),
    # The rack stands alone, so it has its own.
    "cryptography": ("capox/kube/self_signed.py", "capox/rack/certificates.py"),
    "httpx": ("capox/oxide/client.py",),
    "jsonschema_rs": ("capox/rack/",),
    "kopf": ("capox/kube/kopf_source.py",),
    "kubernetes": ("capox/kube/client.py", "capox/kube/remote.py"),
    "prometheus_client": ("capox/kube/metrics.py",),
    "sortedcontainers": ("capox/rack/",),
    "starlette": ("capox/rack/",),
    "uvicorn": ("capox/rack/",),
    "websockets": ("capox/rack/",),
}
"""Third-party package -> the files or folders of capox that may import it, so that changing it costs one place."""

SHARED = frozenset({"pydantic", "pydantic_core", "structlog", "yaml"})
"""Third-party packages that every room may import: data and logging, no connections of their own."""

_PURE = re.compile(
    r"capox/(provider_id|ownership|oxide/models(/\w+)?|kube/(core_objects|objects|conditions)|ccm/placement"
    r"|api/[\w/]+|\w+/\w+_plan)\.py"
)
_AWAITING_PACKAGES = frozenset(
    {"aiohttp", "anyio", "asyncio", "httpx", "kopf", "kubernetes", "starlette", "trio", "uvicorn", "websockets"}
)
_AWAITING_NODES = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
_SETTINGS = frozenset({"capox/settings.py", "capox/rack/settings.py"})
_SHAPELESS_NAMES = frozenset({"util", "utils", "helper", "helpers", "common", "base"})
_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
# Both lists are in pieces, because this file is in the tree too.
_REGISTRIES = re.compile(
    r"\b(?:"
    + "|".join(
        rf"{host}\.{domain}"
        for host, domain in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            (r"(?:proxy|sum)\.golang", "org"),
            ("crates", "io"),
            ("npmjs", "(?:org|com)"),
            (r"(?:repo1?|central)\.maven", r"\w+"),
            (r"(?:deb|ftp|security|snapshot)\.debian", "org"),
        )
    )
    + r")\b"
)
_UNFINISHED = re.compile(
    rf"\b(?:{'|'.join(head + tail for head, tail in (('TO', 'DO'), ('FIX', 'ME'), ('XX', 'X')))})\b"
)


def imports_of(path: str, text: str) -> list[tuple[int, str]]:
    """Every import of a module as (line, dotted name), at any depth; `from a import b` gives both `a` and `a.b`."""
    package = path.removesuffix(".py").split("/")[:-1]
    names: list[tuple[int, str]] = []
    for node in ast.walk(_parsed(path, text)):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [(node.lineno, module), *((node.lineno, f"{module}.{alias.name}") for alias in node.names)]
    return names


def awaits(path: str, text: str) -> list[str]:
    """Everything in a module that awaits, or that is made for code that does."""
    found = [f"{path}:{node.lineno}: awaits" for node in _nodes(path, text, _AWAITING_NODES)]
    found += [
        f"{path}:{at}: imports {name}" for at, name in imports_of(path, text) if _root(name) in _AWAITING_PACKAGES
    ]
    return found


def is_pure(path: str) -> bool:
    """Is it one of the modules that only compute: plans, placement, wire models, API kinds, identities?"""
    return _PURE.fullmatch(path) is not None


def impurity(path: str, text: str, awaiting_modules: Collection[str]) -> list[str]:
    """A pure module neither awaits nor imports what awaits: a package, or one of `awaiting_modules` (dotted names)."""
    if not is_pure(path):
        return []
    found = awaits(path, text)
    found += [
        f"{path}:{at}: imports {name}, which awaits" for at, name in imports_of(path, text) if name in awaiting_modules
    ]
    return [f"{finding}; a pure module only computes" for finding in found]


def environment_readers(path: str, text: str) -> list[str]:
    """In capox only the settings modules look at the environment; everything else is handed what it needs."""
    if not path.startswith("capox/") or path in _SETTINGS:
        return []
    lines = [
        node.lineno
        for node in _nodes(path, text, (ast.Attribute,))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {f"os.{name}" for name in _ENVIRONMENT}
    ]
    lines += [at for at, name in imports_of(path, text) if name in {f"os.{name}" for name in _ENVIRONMENT}]
    return [f"{path}:{at}: reads the environment; take it from settings" for at in lines]


def shapeless_names(path: str, _text: str) -> list[str]:
    """A module or package is named by the noun that it holds."""
    words = {word for part in path.removesuffix(".py").split("/") for word in part.split("_")}
    return [f"{path}:1: {word!r} names no thing; find the noun" for word in sorted(words & _SHAPELESS_NAMES)]


def lengths(path: str, text: str) -> list[str]:
    """A module, and outside the tests a function without its docstring, fits into one person's mind."""
    found = []
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX:
        found.append(f"{path}:1: {lines} lines, at most {MODULE_LINES_MAX}; split it along the data flow")
    if path.startswith("tests/"):  # a user story is one function
        return found
    for node in _nodes(path, text, (ast.FunctionDef, ast.AsyncFunctionDef)):
        length = _function_length(node)
        if length > FUNCTION_LINES_MAX:
            found.append(f"{path}:{node.lineno}: a function of {length} lines, at most {FUNCTION_LINES_MAX}; split it")
    return found


def imports_of_tests(path: str, text: str) -> list[str]:
    """What is shipped, and what builds it, never needs the tests."""
    if path.startswith("tests/"):
        return []
    return [f"{path}:{at}: imports {name}" for at, name in imports_of(path, text) if _root(name) == "tests"]


def foreign_packages(path: str, text: str) -> list[str]:
    """In capox a third-party package is imported by its owner only, and one without an owner by nobody."""
    if not path.startswith("capox/"):
        return []
    at_home = SHARED | sys.stdlib_module_names | {"capox", "tests", "hack"}
    foreign = sorted({(at, _root(name)) for at, name in imports_of(path, text)} - {(0, "")})
    found = []
    for at, package in foreign:
        owners = OWNERS.get(package, ())
        if package in at_home or any(path == owner or path.startswith(f"{owner.rstrip('/')}/") for owner in owners):
            continue
        belongs = f"belongs to {' and '.join(owners)}" if owners else "has no owner (tests/house.py, pyproject.toml)"
        found.append(f"{path}:{at}: imports {package}, which {belongs}")
    return found


def rack_imports(path: str, text: str) -> list[str]:
    """The rack stands alone: not even capox's version is taken from outside it."""
    if not path.startswith("capox/rack/"):
        return []
    names = imports_of(path, text)
    # `from capox import rack` names capox only on its way to the rack.
    on_the_way = {at for at, name in names if name == "capox.rack"}
    return [
        f"{path}:{at}: imports {name}; the rack imports nothing of capox"
        for at, name in names
        if _root(name) == "capox" and name.split(".")[1:2] != ["rack"] and not (name == "capox" and at in on_the_way)
    ]


def registry_hosts(path: str, text: str) -> list[str]:
    """Where packages come from is each machine's own configuration."""
    return [f"{path}:{at}: names the package registry {found}" for at, found in _matches(_REGISTRIES, text)]


def unfinished(path: str, text: str) -> list[str]:
    """What is not finished stands in the tracker, not in the tree."""
    return [f"{path}:{at}: says {found}; finish it or leave it out" for at, found in _matches(_UNFINISHED, text)]


@functools.lru_cache(maxsize=1024)
def _parsed(path: str, text: str) -> ast.Module:
    """The syntax tree; every rule wants it, parsing it once is enough."""
    return ast.parse(text, path)


def _nodes(path: str, text: str, kinds: tuple[type[ast.expr | ast.stmt], ...]) -> Iterator[ast.expr | ast.stmt]:
    """The nodes of some kinds in a module."""
    return (node for node in ast.walk(_parsed(path, text)) if isinstance(node, kinds))


def _function_length(node: ast.AST) -> int:
    """Lines from `def` to the end, less the docstring."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    return _lines(node) - (_lines(docstring) if docstring else 0)


def _lines(node: ast.stmt) -> int:
    """Lines that a statement takes."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _root(name: str) -> str:
    """The top-level package of a dotted name."""
    return name.partition(".")[0]


def _matches(pattern: re.Pattern[str], text: str) -> list[tuple[int, str]]:
    """Line and text of each match."""
    return [
        (at, match.group()) for at, line in enumerate(text.splitlines(), start=1) for match in pattern.finditer(line)
    ]
