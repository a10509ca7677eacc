"""`covey certs`: the CA, the server's certificate, and which sites may join."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.table import Column, Table
from typer.core import TyperGroup

from covey.cli.command import add
from covey.errors import UserError
from covey.terminal import Console, console


class CertsGroup(TyperGroup):
    """The commands; a folder in place of a command is `make FOLDER`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["make", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=CertsGroup,
    no_args_is_help=True,
    help="Keys and certificates: make, request, sign, admit, list, revoke, renew.",
)


@app.callback()
def needs_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise UserError("this command needs the package cryptography: install covey[flower]")


def made(*paths: Path) -> None:
    for path in paths:
        console.print(f"made {path}")


def make(folder: Path, *, host: list[str] | None = None, site: list[str] | None = None) -> None:
    """Make a CA and the server's certificate; existing ones are kept.

    Args:
        folder: the server's folder of certificates and keys.
        host: a name or address by which sites reach the server. Repeatable.
        site: for tests: a site whose key is made on this machine. Repeatable.
    """
    from covey.deploy.certs import make_certs

    made(*make_certs(folder, hosts=host or (), sites=site or ()))
    if site:
        console.print(
            "keys of sites made here are for tests; a real site makes its own with: covey certs request NAME",
        )


def request(name: str, *, folder: Path = Path(".")) -> None:
    """At a site: make its own key, and a request for the server's administrator to sign.

    Args:
        name: what the site is called.
        folder: where to put the key and the request.
    """
    from covey.deploy.certs import private_key, public_text
    from covey.deploy.enrolment import request as ask
    from covey.deploy.site_list import fingerprint

    secret, asking = ask(folder, name)
    made(secret, asking)
    console.print(f"its fingerprint: {fingerprint(public_text(private_key(secret).public_key()))}")
    console.print(
        f"keep {secret.name} here; send {asking.name} to the server's administrator, who sends back "
        f"{name}.crt and ca.crt",
    )


def sign(folder: Path, file: Path, *, days: int = 365) -> None:
    """Where the CA's key is: sign a site's request and put the site onto the list.

    Args:
        folder: the server's folder of certificates and keys.
        file: a site's request: NAME.csr.
        days: how many days the certificate is valid.
    """
    from covey.deploy.enrolment import sign as signed

    path = signed(folder, file, days=days)
    made(path)
    console.print(f"send the site {path} and {folder / 'ca.crt'}")


def admit(folder: Path, file: Path) -> None:
    """On the server, where the CA's key is not: put the site of a certificate onto the list.

    Args:
        folder: the server's folder of certificates and keys.
        file: a certificate that the CA signed elsewhere: NAME.crt.
    """
    from covey.deploy.enrolment import admit as admitted

    site = admitted(folder, file)
    console.print(f"{site.name} may join as client {site.client} until {site.until[:10]}")


def show(folder: Path) -> None:
    """Who may join, and who may not any more.

    Args:
        folder: the server's folder of certificates and keys.
    """
    from covey.deploy.certs import expiry
    from covey.deploy.site_list import listed_sites

    whole = [Column(name, no_wrap=True) for name in ("site", "client", "key", "until")]
    table = Table(*whole, "state")  # fingerprints are compared
    for site in sorted(listed_sites(folder)[0], key=lambda site: site.client):
        until = site.until[:10] or "no end"
        table.add_row(site.name, str(site.client), site.fingerprint, until, site.state())
    Console().print(table)
    if (folder / "server.crt").exists():
        console.print(f"the server's certificate expires on {expiry(folder):%Y-%m-%d}")


def revoke(folder: Path, name: str) -> None:
    """Shut a site out at once, also from a running server.

    Args:
        folder: the server's folder of certificates and keys.
        name: the site's name.
    """
    from covey.deploy.enrolment import revoke as revoked

    site = revoked(folder, name)
    console.print(f"{site.name} (client {site.client}) is shut out; {site.fingerprint}")


def renew(folder: Path, names: list[str] | None = None, *, days: int = 365, server: bool = False) -> None:
    """Where the CA's key is: new certificates for the same keys of sites.

    Args:
        folder: the server's folder of certificates and keys.
        names: sites to renew. [default: all]
        days: how many days the certificate holds.
        server: also renew the server's certificate.
    """
    from covey.deploy.certs import server_certificate
    from covey.deploy.enrolment import renew as renewed

    made(*renewed(folder, names or (), days=days))
    if server:
        made(*server_certificate(folder))


add(app, make, request, sign, admit)
add(app, show, name="list")
add(app, revoke, renew)
