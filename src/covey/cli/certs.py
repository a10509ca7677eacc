"""`covey certs`: the CA, the server's certificate, and which sites may join."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from typer.core import TyperGroup

from covey.errors import UserError
from covey.terminal import Console, console

Folder = Annotated[
    Path, typer.Argument(help="The server's folder of certificates and keys.", show_default=False)
]
Days = Annotated[int, typer.Option(help="How many days the certificate holds.")]


class CertsGroup(TyperGroup):
    """The commands; a folder in place of a command is `make FOLDER`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["make", *args]
        return super().resolve_command(ctx, args)


certs = typer.Typer(
    cls=CertsGroup,
    no_args_is_help=True,
    help="Keys and certificates: make, request, sign, admit, list, revoke, renew.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(certs, name="certs")


@certs.callback()
def needs_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise UserError("this command needs the package cryptography: install covey[flower]")


def made(*paths: Path) -> None:
    for path in paths:
        console.print(f"made {path}", highlight=False)


@certs.command()
def make(
    folder: Folder,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address by which sites reach the server. Repeatable.")
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(help="For tests: a site whose key is made on this machine. Repeatable."),
    ] = None,
) -> None:
    """Make a CA and the server's certificate; what is there stays."""
    from covey.deploy.certs import make_certs

    made(*make_certs(folder, hosts=host or (), sites=site or ()))
    if site:
        console.print(
            "keys of sites made here are for tests; a real site makes its own with: covey certs request NAME",
            highlight=False,
        )


@certs.command()
def request(
    name: Annotated[str, typer.Argument(help="What the site is called.", show_default=False)],
    folder: Annotated[Path, typer.Option(help="Where to put the key and the request.")] = Path("."),
) -> None:
    """At a site: make its own key, and a request for the server's administrator to sign."""
    from covey.deploy.certs import private_key, public_text
    from covey.deploy.enrolment import request as ask
    from covey.deploy.site_list import fingerprint

    secret, asking = ask(folder, name)
    made(secret, asking)
    console.print(
        f"its fingerprint: {fingerprint(public_text(private_key(secret).public_key()))}", highlight=False
    )
    console.print(
        f"keep {secret.name} here; send {asking.name} to the server's administrator, who sends back "
        f"{name}.crt and ca.crt",
        highlight=False,
    )


@certs.command()
def sign(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="A site's request: NAME.csr.", show_default=False)],
    days: Days = 365,
) -> None:
    """Where the CA's key is: sign a site's request and put the site onto the list."""
    from covey.deploy.enrolment import sign as signed

    path = signed(folder, file, days=days)
    made(path)
    console.print(f"send the site {path} and {folder / 'ca.crt'}", highlight=False)


@certs.command()
def admit(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(help="A certificate that the CA signed elsewhere: NAME.crt.", show_default=False)
    ],
) -> None:
    """On the server, where the CA's key is not: put the site of a certificate onto the list."""
    from covey.deploy.enrolment import admit as admitted

    site = admitted(folder, file)
    console.print(f"{site.name} may join as client {site.client} until {site.until[:10]}", highlight=False)


@certs.command("list")
def show(folder: Folder) -> None:
    """Who may join, and who may not any more."""
    from covey.deploy.certs import expiry
    from covey.deploy.enrolment import standing

    whole = [Column(name, no_wrap=True) for name in ("site", "client", "key", "until")]
    table = Table(*whole, "state")  # fingerprints are compared
    for site in standing(folder):
        table.add_row(site.name, str(site.client), site.key, site.until, site.state)
    Console().print(table)
    if (folder / "server.crt").exists():
        console.print(f"the server's certificate ends on {expiry(folder):%Y-%m-%d}", highlight=False)


@certs.command()
def revoke(
    folder: Folder, name: Annotated[str, typer.Argument(help="The site's name.", show_default=False)]
) -> None:
    """Shut a site out at once, also from a running server."""
    from covey.deploy.enrolment import revoke as revoked

    site = revoked(folder, name)
    console.print(f"{site.name} (client {site.client}) is shut out; {site.fingerprint}", highlight=False)


@certs.command()
def renew(
    folder: Folder,
    names: Annotated[
        list[str] | None, typer.Argument(help="Sites to renew. [default: all]", show_default=False)
    ] = None,
    days: Days = 365,
    server: Annotated[bool, typer.Option("--server", help="The server's certificate, too.")] = False,
) -> None:
    """Where the CA's key is: new certificates for the same keys of sites."""
    from covey.deploy.certs import server_certificate
    from covey.deploy.enrolment import renew as renewed

    made(*renewed(folder, names or (), days=days))
    if server:
        made(*server_certificate(folder))
