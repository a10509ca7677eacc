"""The list of sites that a server lets in: names, numbers and public keys in `sites.json`, as they stand now."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import read_json, write_atomically

SOON = 30  # days before its end in which a certificate should be renewed


@dataclass(frozen=True, kw_only=True)
class ListedSite:
    """A site on the list: its client number stays its own; `until` and `revoked` are times, or empty."""

    name: str
    client: int
    public_key: str
    until: str = ""
    revoked: str = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public_key)

    def state(self, now: datetime | None = None) -> str:
        """Whether it may join: valid, ends soon, expired or revoked."""
        if self.revoked:
            return f"revoked since {self.revoked[:10]}"
        if not self.until:
            return "valid"
        left = datetime.fromisoformat(self.until) - (now or datetime.now(UTC))
        if left < timedelta(0):
            return "expired"
        return f"ends in {left.days} days" if left.days < SOON else "valid"

    @property
    def welcome(self) -> bool:
        return not self.revoked and self.state() != "expired"


def fingerprint(key: str) -> str:
    """A public key in few letters, for logs and lists."""
    return f"SHA256:{hashlib.sha256(key.strip().encode()).hexdigest()[:16]}"


def check_name(name: str) -> str:
    """A site's name, which is also the name of files."""
    if not name.isascii() or len(name) > 80 or not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"a site is called {name!r}; at most 80 letters, digits, - and _ are allowed")
    return name


def listed_sites(folder: Path) -> tuple[list[ListedSite], int]:
    """All sites that were ever let in, and the number that the next one gets: entries may be taken out by hand."""
    path = folder / "sites.json"
    if not path.exists():
        known = sorted({place.stem for place in (folder / "sites").glob("*.*")})
        if known:
            raise UserError(
                f"{path} is missing, though sites were let in ({', '.join(known[:5])}): it says who was revoked and "
                'whose number is which; bring it back from a copy, or write {"next": 0, "sites": []} to begin anew'
            )
        return [], 0
    try:
        found = read_json(path)
        sites = [
            ListedSite(
                name=str(site["name"]),
                client=int(site["client"]),
                public_key=str(site["public_key"]),
                until=_time(site.get("until", "")),
                revoked=_time(site.get("revoked", "")),
            )
            for site in found["sites"]
        ]
        return sites, int(found["next"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f'{path} is damaged ({type(error).__name__}: {error}); it must hold {{"next": NUMBER, "sites": [...]}}'
        ) from error


def _time(text: Any) -> str:
    """A time as text, or nothing."""
    if text:
        datetime.fromisoformat(str(text))
    return str(text)


def write_list(folder: Path, sites: Sequence[ListedSite], number: int) -> None:
    """Writes the list; `number` is the one that the next site gets."""
    plain = [{name: value for name, value in asdict(site).items() if value != ""} for site in sites]
    write_atomically(folder / "sites.json", json.dumps({"next": number, "sites": plain}, indent=1))


class SiteList(Mapping[str, int]):
    """The client number of every key that may join now; the list may change while a server runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sites: dict[str, ListedSite] = {}
        self.stamp = -1
        if not self.read():
            raise UserError(
                f"--certs {folder} lists no site; let one in with: covey certs sign {folder} NAME.csr"
            )

    def read(self) -> dict[str, ListedSite]:
        """Reads the file again if it has changed; while somebody is editing it, what it said before counts."""
        path = self.folder / "sites.json"
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        gone = not stamp and self.stamp > 0  # deleted by mistake, or just being replaced
        if stamp != self.stamp and not gone:
            try:
                self.sites = {site.public_key: site for site in listed_sites(self.folder)[0]}
                self.stamp = stamp
            except UserError:
                if self.stamp == -1:
                    raise
        return {key: site for key, site in self.sites.items() if site.welcome}

    def names(self) -> dict[str, str]:
        """The name of every key."""
        return {key: site.name for key, site in self.read().items()}

    def registered(self) -> dict[str, str]:
        """The same with keys whose time is over: these may be renewed, while one that was revoked never returns."""
        self.read()
        return {key: site.name for key, site in self.sites.items() if not site.revoked}

    def listed(self) -> dict[str, tuple[str, int]]:
        """The name and the client number of every key."""
        return {key: (site.name, site.client) for key, site in self.read().items()}

    def known(self) -> dict[str, tuple[str, int]]:
        """The same of every key that was ever listed, also of those that may not join any more."""
        self.read()
        return {key: (site.name, site.client) for key, site in self.sites.items()}

    def objection(self, key: str) -> str:
        """Why a key may not join: it was never listed, it was revoked, or its time is over; empty if it may."""
        if key in self.read():
            return ""
        site = self.sites.get(key)
        return f"its key is {site.state()}" if site is not None else "its key is not on the list"

    def warnings(self) -> list[str]:
        """Sites whose time is over, or soon."""
        return [
            f"the certificate of {site.name} {'has ended' if site.state() == 'expired' else site.state()}; "
            f"renew it with: covey certs renew {self.folder} {site.name}"
            for site in self.sites.values()
            if not site.revoked and site.state() != "valid"
        ]

    def __getitem__(self, key: str) -> int:
        return self.read()[key].client

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())
