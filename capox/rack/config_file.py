"""Reading `rack.yaml`, and the configuration of a rack for which there is none.

Complaints are made here, one line each: where, what is there, what is possible. What looks like a token, and whatever
stands at a token's place, is never repeated.
"""

from __future__ import annotations

import difflib
import ipaddress
import typing
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import yaml

from capox.rack import config
from capox.rack.credentials import without_secrets
from capox.rack.settings import Settings

MAXIMUM_FILE_BYTES = 4 * 1024 * 1024
_GIB = 1024**3


class ConfigError(Exception):
    """The configuration cannot be used; the message has a line for each reason."""


class _StrictLoader(yaml.SafeLoader):
    """YAML, but a key given twice is an error rather than a silent choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001 -- the signature of the class above
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, Hashable) and key in seen:
                problem = f"the key {key} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def load(path: Path) -> config.Config:
    """The configuration in a file.

    Raises:
        ConfigError: it cannot be read or used.
    """
    try:
        if path.stat().st_size > MAXIMUM_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAXIMUM_FILE_BYTES} bytes; a configuration is smaller")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    try:
        return parse(text).located(path.parent)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def parse(text: str) -> config.Config:
    """The configuration in a text.

    Raises:
        ConfigError: it is not YAML, or does not describe a rack.
    """
    try:
        # A subclass of SafeLoader makes nothing but plain values.
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ConfigError(f"{place}not YAML: {without_secrets(str(problem))}") from None
    if not isinstance(value, dict):
        raise ConfigError("a configuration is a mapping, with at least `silos`")
    try:
        return config.Config.model_validate(value)
    except pydantic.ValidationError as error:
        raise ConfigError("\n".join(_complaints(error, value))) from None


def default(settings: Settings) -> config.Config:
    """A rack with one silo, one user, one project, two pools, four sleds and an image.

    The tokens of the user and of the control endpoint come from the environment where it has them, else from files in
    the state directory, which are made when they are not there.
    """
    user = config.User(
        name="admin",
        role="admin",
        fleet_viewer=True,
        tokens=(config.Token(**token_fields(settings, Settings.TOKEN, "token")),),
    )
    silo = config.Silo(
        name="lab",
        users=(user,),
        projects=(config.Project(name="demo", description="for trying things out"),),
        images=(config.Image(name="debian-13", os="debian", version="13", size=2 * _GIB),),
    )
    link = (config.Link(silo="lab", default=True),)
    return config.Config(
        control=default_control(settings),
        silos=(silo,),
        ip_pools=(
            config.IpPool(name="public-v4", ranges=(_span("198.51.100.0", "198.51.100.255"),), silos=link),
            config.IpPool(name="public-v6", family="v6", ranges=(_span("2001:db8::", "2001:db8::ff"),), silos=link),
        ),
        subnet_pools=(
            config.SubnetPool(name="routed", networks=(ipaddress.IPv4Network("203.0.113.0/24"),), silos=link),
        ),
    )


def default_control(settings: Settings) -> config.Control:
    """The control endpoint of a rack whose configuration has none."""
    fields = token_fields(settings, Settings.CONTROL_TOKEN, "control-token")
    return config.Control.model_validate({"listen": "127.0.0.1:12221", **fields})


def token_fields(settings: Settings, variable: str, file_name: str) -> dict[str, Any]:
    """A token's source: the environment variable if it is set, else a file in the state directory."""
    if variable in settings.variables:
        return {"token_env": variable}
    return {"token_file": settings.state_directory / file_name, "create": True}


def _span(first: str, last: str) -> config.Range:
    return config.Range.model_validate({"first": first, "last": last})


def _complaints(error: pydantic.ValidationError, value: Any) -> Iterator[str]:
    for detail in error.errors(include_url=False, include_context=False):
        where = detail["loc"]
        field = f"{_format_location(where)}: " if where else ""
        if detail["type"] == "extra_forbidden":
            known = _fields_at(where[:-1])
            close = difflib.get_close_matches(str(where[-1]), known, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}" if known else ""
            yield without_secrets(f"{field}unknown field{hint}")
            continue
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if detail["type"] == "model_type":
            message = f"should be a mapping of {', '.join(_fields_at(where))}"
        yield without_secrets(f"{field}{_shown(where, _value_at(value, where))}{message}")


def _format_location(where: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where if _is_place(part))
    return text.removeprefix(".")


def _is_place(part: int | str) -> bool:
    """Whether a part of a location is in the file: validators and members of unions add their names to locations."""
    return isinstance(part, int) or part.replace("_", "").replace("-", "").isalnum()


def _value_at(value: Any, where: tuple[int | str, ...]) -> Any:
    for part in where:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _shown(where: tuple[int | str, ...], value: Any) -> str:
    """The value in a complaint: only short plain ones, and none that stands where tokens stand."""
    if any("token" in str(part) for part in where) or not isinstance(value, str | int | float | bool):
        return ""
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'}: "


def _fields_at(where: tuple[int | str, ...]) -> list[str]:
    """The fields that the section at a place has."""
    model: Any = config.Config
    for part in where:
        if isinstance(part, int):
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return []
        model = _section_in(field.annotation)
    return sorted(getattr(model, "model_fields", {}))


def _section_in(annotation: Any) -> Any:
    """The model within an annotation such as `tuple[Silo, ...]` or `Tls | None`."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    found = (_section_in(argument) for argument in typing.get_args(annotation))
    return next((section for section in found if section is not None), None)
