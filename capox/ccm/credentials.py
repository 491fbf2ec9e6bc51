"""The credentials of the rack: variables of the environment, or files in a folder, which win and may change (R3).

A Secret that is mounted as a folder is renewed in place by the kubelet, so a rotated token is taken without a restart.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

__all__ = ["KEYS", "Credentials", "CredentialsError", "CredentialsSource"]

KEYS: Final[Mapping[str, str]] = {
    "oxide-host": "OXIDE_HOST",
    "oxide-token": "OXIDE_TOKEN",
    "oxide-project": "OXIDE_PROJECT",
    "oxide-ca": "OXIDE_CA",
}
"""The files of the folder, and the variables that stand in for them; the last one is optional, a PEM bundle."""

_FILE_BYTES_MAX: Final = 1024 * 1024


class CredentialsError(Exception):
    """The credentials cannot be used; the message names what is missing, and no value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """What a client of the rack needs, and where it works.

    Attributes:
        host: The rack's address.
        token: The API token.
        project: The project's name or id.
        ca: PEM certificates of a private authority; None trusts the public ones.
    """

    host: str
    token: SecretStr
    project: str
    ca: str | None = None


class CredentialsSource:
    """Where the credentials come from.

    Args:
        variables: What the environment gave, by the names of its variables.
        folder: A folder with files of the names in `KEYS`; None for none.
    """

    def __init__(self, variables: Mapping[str, SecretStr], folder: pathlib.Path | None = None) -> None:
        self._variables = variables
        self._folder = folder

    def read(self) -> Credentials:
        """Give the credentials as they are now. It costs microseconds; ask before each piece of work.

        Raises:
            CredentialsError: One is missing, or a file cannot be read.
        """
        values = {key: self._value(key, variable) for key, variable in KEYS.items()}
        for key in ("oxide-host", "oxide-token", "oxide-project"):
            if not values[key].get_secret_value():
                where = f"file {self._folder / key}, or the variable" if self._folder is not None else "variable"
                raise CredentialsError(f"the {where} {KEYS[key]} is missing or empty; set it")
        ca = values["oxide-ca"].get_secret_value()
        return Credentials(
            host=values["oxide-host"].get_secret_value(),
            token=values["oxide-token"],
            project=values["oxide-project"].get_secret_value(),
            ca=ca + "\n" if ca else None,
        )

    def _value(self, key: str, variable: str) -> SecretStr:
        if self._folder is not None:
            path = self._folder / key
            try:
                with path.open(encoding="utf-8") as file:
                    return SecretStr(file.read(_FILE_BYTES_MAX).strip())
            except FileNotFoundError:
                pass
            except (OSError, UnicodeDecodeError) as error:
                raise CredentialsError(f"the file {path} cannot be read: {type(error).__name__}") from None
        given = self._variables.get(variable)
        return SecretStr(given.get_secret_value().strip()) if given is not None else SecretStr("")
