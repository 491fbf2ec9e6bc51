"""Where tokens come from: the configuration itself, a file, or the environment.

Nothing here puts a token into a message. A file that holds one is made readable by its owner only, and one that others
can read is refused.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

import pydantic

TOKEN_PREFIX = "oxide-token-"  # noqa: S105 -- what every token begins with (semantics 1.1), not one
_TOKEN = re.compile(r"^[\x21-\x7e]{8,256}$")
_SECRET = re.compile(rf"{TOKEN_PREFIX}\S+")
_HIDDEN = "(hidden)"
# What is encoded more often than this is nothing that a client sends by mistake.
_LAYERS = 8


class CredentialError(Exception):
    """A token could not be had; the message says which, why, and what to do, and never the token."""


class TokenSource(pydantic.BaseModel):
    """Exactly one of the three ways to give a token.

    Attributes:
        token: the token itself.
        token_file: a file that holds it, relative to the configuration; line ends at the end do not count.
        token_env: the environment variable that holds it.
        create: make the file, with a new token, when it is not there.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    token: pydantic.SecretStr | None = None
    token_file: Path | None = None
    token_env: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    create: bool = False

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in ("token", "token_file", "token_env") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of token, token_file, token_env; given: {', '.join(given) or 'none'}")
        if self.create and self.token_file is None:
            raise ValueError("create: true needs token_file, the file to make")
        return self

    def __str__(self) -> str:
        """Where the token is, without it."""
        if self.token_file is not None:
            return f"token_file {self.token_file}"
        return f"token_env {self.token_env}" if self.token_env is not None else "token"

    def located(self, directory: Path) -> Self:
        """The same source with its file's path taken relative to a directory."""
        if self.token_file is None:
            return self
        return self.model_copy(update={"token_file": directory / self.token_file.expanduser()})


def read_token(source: TokenSource, variables: Mapping[str, str], *, prefix: str = TOKEN_PREFIX) -> str:
    """The token behind a source.

    Args:
        source: where it is.
        variables: the environment.
        prefix: what the token has to begin with.

    Raises:
        CredentialError: there is none, others can read its file, or it does not look like a token.
    """
    if source.token is not None:
        token = source.token.get_secret_value()
    elif source.token_env is not None:
        if source.token_env not in variables:
            raise CredentialError(f"{source}: the environment variable is not set; set it or name another source")
        token = variables[source.token_env]
    else:
        assert source.token_file is not None
        if source.create:
            create_token_file(source.token_file, prefix)
        token = _read_file(source.token_file)
    if not token.startswith(prefix) or not _TOKEN.match(token):
        begins = f"begins with `{prefix}` and " if prefix else ""
        raise CredentialError(f"{source}: a token {begins}has 8 to 256 visible ASCII characters without blanks")
    return token


def create_token_file(path: Path, prefix: str = TOKEN_PREFIX) -> None:
    """Put a new random token into a file that only its owner can read; one that is there already is kept.

    Raises:
        CredentialError: the file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written aside and linked into place: two racks that start together agree on one token, and none reads half.
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{prefix}{secrets.token_hex(20)}\n")
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise CredentialError(f"token_file {path}: cannot be made: {error.strerror}") from None


def without_secrets(text: str) -> str:
    """A text with everything that looks like a token crossed out, also what does so only when it has been decoded.

    A text in which a token is percent-encoded is given decoded; one that cannot be decoded to its end, not at all.
    """
    shown = layer = _SECRET.sub(TOKEN_PREFIX + _HIDDEN, text)
    for _ in range(_LAYERS):
        decoded = urllib.parse.unquote(layer)
        if decoded == layer:
            return shown
        layer = _SECRET.sub(TOKEN_PREFIX + _HIDDEN, decoded)
        if layer != decoded:
            shown = layer
    return _HIDDEN


def _read_file(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="ascii")
    except OSError as error:
        hint = "; create: true makes it" if isinstance(error, FileNotFoundError) else ""
        raise CredentialError(f"token_file {path}: cannot be read: {error.strerror}{hint}") from None
    except UnicodeDecodeError:
        raise CredentialError(f"token_file {path}: holds more than ASCII characters") from None
    if mode & 0o077:
        raise CredentialError(f"token_file {path}: others can read it (mode {mode:04o}); run: chmod 600 {path}")
    return text.rstrip("\r\n")
