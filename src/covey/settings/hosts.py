"""Names and addresses of machines."""

import ipaddress
import re

from covey.errors import UserError

LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)


def check_host(host: str, option: str = "--host") -> str:
    """An address, or a name as machines have them (RFC 1123; a first part of * stands for any)."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0])) and host
    except ValueError:
        labels = host.removeprefix("*.").removesuffix(".").split(".")
        if len(host) > 253 or not all(map(LABEL.fullmatch, labels)):
            shown = host if len(host) <= 80 else f"{host[:80]}..."
            raise UserError(
                f"{option} is {shown!r}; allowed: an IP address, or a name of letters, digits, - and dots"
            ) from None
    return host
