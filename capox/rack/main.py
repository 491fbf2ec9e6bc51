"""`capox rack`: read the configuration, build the rack, serve it until it is told to stop.

Standard output has one line, the announcement, as JSON: where the rack is reached, and in which files its tokens and
its certificate are. Everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from capox.rack import certificates, config, config_file, control, credentials, furnish, logs, pace, settings
from capox.rack.app import RackApp
from capox.rack.clock import PassingClock
from capox.rack.endpoint import Endpoint, parse_endpoint
from capox.rack.guests.session import GuestError, open_guests, questions
from capox.rack.json import JSON
from capox.rack.serving import Serving, ServingError, Site
from capox.rack.state import Rack
from capox.rack.timing import TimingChoice

_EPILOG = """\
Without --config the rack has a silo `lab` with a user `admin`, a project `demo`, two IP pools, four sleds and an image.
Its tokens come from the environment (CAPOX_RACK_TOKEN, CAPOX_RACK_CONTROL_TOKEN) or, where that has none, are made up
and kept in the state directory (CAPOX_RACK_STATE_DIR, else $XDG_STATE_HOME/capox/rack, else ~/.local/state/capox/rack).
The line on standard output says where everything is. See docs/how-to/run-the-rack.md.
"""

# How long requests that are under way when the rack is told to stop may take to end.
GRACE_SECONDS = 5
COMMANDED_GRACE_SECONDS = 1

_ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- to be recognised, not to be listened on

_logger = structlog.get_logger()


class UsageError(Exception):
    """The rack cannot be run as it was asked to; the message says why and what to do."""


def build_parser() -> argparse.ArgumentParser:
    """The command line of `capox rack`."""
    parser = argparse.ArgumentParser(
        prog="capox rack",
        description="Run a simulated Oxide rack: the API over HTTP and HTTPS, and an endpoint that controls it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="what the rack consists of, YAML")
    parser.add_argument("--check", action="store_true", help="only say whether the configuration can be used")
    where = parser.add_argument_group("where to listen (ADDRESS:PORT; port 0 takes a free one)")
    where.add_argument("--listen", type=_endpoint, metavar="A:P", help="HTTP (default 127.0.0.1:12220)")
    where.add_argument("--listen-tls", type=_endpoint, metavar="A:P", help="HTTPS, self-signed unless configured")
    where.add_argument("--listen-control", type=_endpoint, metavar="A:P", help="control (default 127.0.0.1:12221)")
    where.add_argument("--allow-remote", action="store_true", help="permit addresses that other machines can reach")
    where.add_argument("--ready-file", type=Path, metavar="FILE", help="write the announcement there as well")
    how = parser.add_argument_group("how to behave, over what the configuration says")
    how.add_argument("--mode", choices=("auto", "commanded"), help="time passes by itself, or only on command")
    how.add_argument("--timing", choices=("instant", "quick", "realistic"), help="how long things take")
    how.add_argument("--seed", type=int, metavar="N", help="of ids and addresses, so that two runs are alike")
    inside = parser.add_argument_group("what runs inside the instances (docs/how-to/run-machines.md)")
    inside.add_argument("--guests", choices=("none", "docker"), help="nothing (default), or a container each")
    inside.add_argument("--guest-image", metavar="IMAGE", help="what they boot unless the rack's image says it")
    inside.add_argument("--allow-host-changes", action="store_true", help="do not ask before changing this computer")
    log = parser.add_argument_group("log, on standard error")
    log.add_argument("--log-format", choices=("console", "json"), default="console")
    log.add_argument("--log-level", choices=logs.LEVELS, default="info", help="debug shows every request")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `capox rack` with these arguments.

    Returns:
        The exit code: 0 after a stop on request, 2 when the rack could not be run.
    """
    options = build_parser().parse_args(arguments)
    logs.configure(options.log_format, options.log_level)
    environment = settings.read()
    try:
        chosen = configuration(options, environment)
        _require_loopback(chosen, allow_remote=options.allow_remote)
        rack = furnish.build_rack(
            chosen, furnish.clock_of(chosen), furnish.randomness_of(chosen), environment.variables
        )
        control_token = _control_token(chosen, environment)
        if options.check:
            return 0
        _ask_for_changes(chosen, is_allowed=options.allow_host_changes)
        with tempfile.TemporaryDirectory(prefix="capox-rack-") as directory:
            try:
                run = _Run(chosen, rack, environment, control_token, options.ready_file, Path(directory))
                asyncio.run(_serve(run))
            finally:
                if options.ready_file is not None:
                    options.ready_file.unlink(missing_ok=True)
    except (UsageError, config_file.ConfigError, credentials.CredentialError, GuestError, ServingError) as error:
        for line in str(error).splitlines():
            print(f"capox rack: {line}", file=sys.stderr)  # noqa: T201 -- a command's complaint
        return 2
    return 0


def _endpoint(text: str) -> Endpoint:
    try:
        return parse_endpoint(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def configuration(options: argparse.Namespace, environment: settings.Settings) -> config.Config:
    """The configuration, from a file or the default one, with the command line's options over it.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    found = config_file.load(options.config) if options.config is not None else config_file.default(environment)
    changes: dict[str, object] = {
        name: value for name in ("listen", "mode", "seed") if (value := getattr(options, name)) is not None
    }
    if options.timing is not None:
        changes["timing"] = TimingChoice(preset=options.timing)
    inside = {"backend": options.guests, "image": options.guest_image}
    inside = {name: value for name, value in inside.items() if value is not None}
    if inside:
        changes["guests"] = found.guests.model_copy(update=inside)
    if options.listen_tls is not None:
        tls = found.tls or config.Tls(listen=options.listen_tls, self_signed=True)
        changes["tls"] = tls.model_copy(update={"listen": options.listen_tls})
    if options.listen_control is not None:
        commanded = found.control or config_file.default_control(environment)
        changes["control"] = commanded.model_copy(update={"listen": options.listen_control})
    return found.model_copy(update=changes)


def _require_loopback(chosen: config.Config, *, allow_remote: bool) -> None:
    """Refuse to be reached from other machines unless that was asked for.

    Raises:
        UsageError: it would be.
    """
    sections = {"listen": chosen.listen, "tls": chosen.tls, "control": chosen.control}
    for name, section in sections.items():
        endpoint = section if isinstance(section, Endpoint) or section is None else section.listen
        if endpoint is not None and not endpoint.is_loopback and not allow_remote:
            raise UsageError(
                f"{name}: {endpoint} can be reached from other machines; use an address such as 127.0.0.1, or allow it "
                "with --allow-remote"
            )


def _control_token(chosen: config.Config, environment: settings.Settings) -> str | None:
    if chosen.control is None:
        return None
    try:
        return credentials.read_token(chosen.control, environment.variables, prefix="")
    except credentials.CredentialError as error:
        raise credentials.CredentialError(f"control: {error}") from None


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run of the command."""

    chosen: config.Config
    rack: Rack
    environment: settings.Settings
    control_token: str | None
    ready_file: Path | None
    directory: Path


def _ask_for_changes(chosen: config.Config, *, is_allowed: bool) -> None:
    """Ask whether this computer may be changed for guests, if there are to be any.

    Raises:
        UsageError: it may not, or nobody is there to be asked, or they cannot be.
    """
    if chosen.guests.backend == "none":
        return
    if chosen.mode == "commanded":
        raise UsageError("guests: they need time of their own; mode commanded goes with guests none only")
    if is_allowed:
        return
    changes = "".join(f"\n  {line}" for line in questions(chosen))
    wanted = f"guests change this computer until the rack ends, which puts everything back:{changes}"
    if not sys.stdin.isatty():
        raise UsageError(f"{wanted}\nallow it with --allow-host-changes")
    print(f"capox rack: {wanted}\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 -- a question
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was changed")


async def _serve(run: _Run) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    environment = run.environment
    async with open_guests(run.rack, run.chosen, environment.variables, environment.shared_directory) as shared_host:
        await _serve_sites(run, shared_host, stopping)


async def _serve_sites(run: _Run, shared_host: str | None, stopping: asyncio.Event) -> None:
    chosen, rack = run.chosen, run.rack
    app = RackApp(rack, on_call=logs.log_call)
    sites = list(_sites(run, app, shared_host))
    # An operation that waits for a commanded clock would never end; there is no sense in waiting for it.
    grace_seconds = COMMANDED_GRACE_SECONDS if chosen.mode == "commanded" else GRACE_SECONDS
    serving = Serving(sites, grace_seconds)
    await serving.start()
    tasks = [asyncio.create_task(stopping.wait()), asyncio.create_task(serving.wait())]
    if isinstance(rack.clock, PassingClock):
        tasks.append(asyncio.create_task(pace.keep_pace(rack)))
    try:
        _announce(
            _announcement(chosen, serving.urls | _shared_urls(serving.urls, sites, shared_host), sites), run.ready_file
        )
        _logger.info("Serving the rack", **serving.urls, mode=chosen.mode, timing=chosen.timing.preset)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        _logger.info("Stopping the rack")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await serving.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(app.finish(), grace_seconds)


def _sites(run: _Run, app: RackApp, shared_host: str | None) -> list[Site]:
    """What is served: the API, a second time where guests reach it too, and the control endpoint."""
    chosen = run.chosen
    sites = []
    if chosen.listen is not None:
        sites.append(Site("api", app, chosen.listen))
    if chosen.tls is not None:
        certificate, key = chosen.tls.certificate, chosen.tls.key
        if certificate is None or key is None:
            certificate, key = run.directory / "certificate.pem", run.directory / "key.pem"
            hosts = [chosen.tls.listen.host, *([shared_host] if shared_host is not None else [])]
            certificates.write_self_signed(certificate, key, *hosts)
        sites.append(Site("api_tls", app, chosen.tls.listen, certificate, key))
    if shared_host is not None:
        sites += [
            dataclasses.replace(site, name=f"{site.name}_shared", endpoint=Endpoint(shared_host, site.endpoint.port))
            for site in sites
            if site.endpoint.is_loopback
        ]
    if chosen.control is not None and run.control_token is not None:
        sites.append(Site("control", control.build_control(app, run.control_token), chosen.control.listen))
    return sites


def _shared_urls(urls: Mapping[str, str], sites: Sequence[Site], shared_host: str | None) -> dict[str, str]:
    """Where guests reach what listens on every address of this computer anyway."""
    if shared_host is None:
        return {}
    anywhere = {site.name: site.endpoint.host for site in sites if site.endpoint.host in _ANYWHERE}
    found = {name: urlsplit(urls[name]) for name in anywhere if name != "control"}
    return {f"{name}_shared": f"{url.scheme}://{shared_host}:{url.port}" for name, url in found.items()}


def _announcement(chosen: config.Config, urls: dict[str, str], sites: Sequence[Site]) -> JSON:
    """What a user, or a program that started the rack, has to know; of tokens only where they are."""
    users = [
        {"silo": silo.name, "user": user.name, "token_file": str(token.token_file)}
        for silo, user, token in chosen.token_sources()
        if token.token_file is not None
    ]
    announced: dict[str, JSON] = {"pid": os.getpid(), **urls, "users": users}
    for site in sites:
        if site.certificate is not None:
            announced["certificate"] = str(site.certificate)
    if chosen.control is not None and chosen.control.token_file is not None:
        announced["control_token_file"] = str(chosen.control.token_file)
    return announced


def _announce(announced: JSON, ready_file: Path | None) -> None:
    line = json.dumps(announced)
    print(line, flush=True)  # noqa: T201 -- the announcement is this command's output
    if ready_file is not None:
        # Renamed into place, so that whoever waits for the file never reads half of it.
        draft = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
        draft.write_text(f"{line}\n", encoding="utf-8")
        draft.replace(ready_file)
