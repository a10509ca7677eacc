"""The list of sites as plain values."""

from pathlib import Path
from typing import Any

from covey.deploy.site_list import listed_sites


def site_list(folder: Path) -> list[dict[str, Any]]:
    """The sites that may join now: name, client number, public key (PEM)."""
    return [
        {"name": site.name, "client": site.client, "public_key": site.public_key}
        for site in listed_sites(folder)[0]
        if site.welcome
    ]
