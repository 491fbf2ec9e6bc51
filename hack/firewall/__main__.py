"""`python -m hack.firewall --project NAME tcp/6443 tcp/80`: let the ports of clusters into a VPC.

A VPC lets nothing in from outside but SSH and ICMP. This reads the list of its rules, puts one rule for each protocol
into it, and writes it back; all other rules stay as they are. OXIDE_HOST and OXIDE_TOKEN say which rack and as whom.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from capox import logs
from capox.oxide.client import OxideClient
from capox.oxide.errors import OxideError
from capox.oxide.models.firewall import VpcFirewallRulesUpdate
from hack.firewall.rules import parse_port, with_ports


async def open_ports(options: argparse.Namespace, host: str, token: SecretStr) -> None:
    """Read the rules, change ours, write them."""
    where = {"vpc": options.vpc, "project": options.project}
    async with OxideClient(host=host, token=token) as client:
        found = (await client.vpc_firewall_rules_view(**where)).rules
        wanted = with_ports([rule.as_update() for rule in found], options.ports, options.vpc, options.source)
        await client.vpc_firewall_rules_update(VpcFirewallRulesUpdate(rules=tuple(wanted)), **where)


def _port(text: str) -> tuple[str, str]:
    try:
        return parse_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command.

    Returns:
        The exit code: 0; 1 after an error that has been printed.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hack.firewall",
        description="Let the ports of clusters into a VPC. OXIDE_HOST and OXIDE_TOKEN say which rack and as whom.",
    )
    parser.add_argument("--project", required=True, help="the project of the VPC")
    parser.add_argument("--vpc", default="default", help="the name of the VPC (default: %(default)s)")
    parser.add_argument(
        "--source", action="append", default=[], metavar="NETWORK", help="let only this network in; can be repeated"
    )
    parser.add_argument(
        "ports",
        nargs="+",
        type=_port,
        metavar="PORT",
        help="tcp/6443 for API servers, and the ports of Services; what only an earlier run has named is closed",
    )
    options = parser.parse_args(arguments)
    missing = [name for name in ("OXIDE_HOST", "OXIDE_TOKEN") if not environ.get(name)]
    if missing:
        print(f"error: {' and '.join(missing)} must be set: the rack's address and an API token", file=sys.stderr)
        return 1
    logs.configure(level="warning", is_json=False)
    try:
        asyncio.run(open_ports(options, environ["OXIDE_HOST"], SecretStr(environ["OXIDE_TOKEN"])))
    except (OxideError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    opened = ", ".join(f"{protocol}/{port}" for protocol, port in options.ports)
    sources = ", ".join(options.source) or "anywhere"
    print(f"VPC {options.vpc} of project {options.project} lets in {opened} from {sources}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
