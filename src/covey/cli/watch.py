"""`covey watch`: all runs of a folder, live in a browser."""

from pathlib import Path
from typing import Annotated

from covey.errors import UserError, importing
from covey.settings.hosts import check_host
from covey.settings.ranges import Range
from covey.terminal import console


def watch(
    folder: Path = Path("runs"),
    *,
    port: Annotated[int, Range(0, 65535)] = 8765,
    host: str = "127.0.0.1",
    key: Path | None = None,
    cert: Path | None = None,
    cert_key: Path | None = None,
) -> None:
    """Serve a live page of all runs in a folder: those in progress, finished ones, and comparisons.

    Runs may be made by any command meanwhile; nothing leaves this machine.

    Args:
        folder: the folder whose runs are shown.
        port: the port; 0 is any that is free.
        host: the address; another than this machine's own needs --key and --cert.
        key: a file with a password that a browser is asked for.
        cert: a TLS certificate, with --cert-key.
        cert_key: the certificate's key.
    """
    with importing("covey watch needs packages: pip install 'covey[watch]'"):
        from covey.report.live.app import HOSTS, make_app
        from covey.report.live.serve import listening, server_of
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    check_host(host)
    alone = host in ("127.0.0.1", "localhost", "::1")
    if not alone and not (key and cert and cert_key):
        raise UserError(
            f"--host {host} can be reached by others: give --key FILE, --cert FILE and --cert-key FILE, or leave it out"
        )
    app = make_app(folder.absolute(), key=secret_in(key) if key else "", hosts=HOSTS if alone else ())
    place = listening(host, port, f"--port {port}")
    tls = {"ssl_certfile": str(cert), "ssl_keyfile": str(cert_key)} if cert else {}
    console.print(
        f"http{'s' if cert else ''}://{host}:{place.getsockname()[1]}/ shows {folder}; Ctrl-C ends it",
    )
    server_of(app, **tls).run(sockets=[place])


def secret_in(file: Path, option: str = "--key") -> str:
    """The password in a file that nobody else may read."""
    try:
        if file.stat().st_mode & 0o077:
            raise UserError(f"{option} {file} can be read by others; make it yours alone: chmod 600 {file}")
        secret = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"{option} {file} cannot be read: {error.strerror}") from error
    if len(secret) < 12:
        raise UserError(f"{option} {file} holds {len(secret)} characters; allowed: at least 12")
    return secret
