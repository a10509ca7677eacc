"""Certificates and keys: a CA, the server's certificate, and for each site a key that says who it is."""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.deploy.secret_file import write_secret
from covey.errors import UserError
from covey.writing import write_atomically

YEARS = 5


def make_certs(folder: Path, *, hosts: Sequence[str], sites: Sequence[str]) -> list[Path]:
    """Makes what is not there yet; a site's number stands in `sites.json`, never changes and is never given again."""
    from cryptography.hazmat.primitives.asymmetric import ec

    for name in sites:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise UserError(f"--site is {name!r}; letters, digits, - and _ are allowed")
    (folder / "sites").mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    if not (folder / "ca.key").exists():
        key = ec.generate_private_key(ec.SECP384R1())
        made += _write_pair(folder, "ca", key, _certificate("covey CA", key))
    if hosts or not (folder / "server.key").exists():
        made += _server(folder, [*_hosts(folder), *hosts, "localhost", "127.0.0.1"])
    listed, number = _listed(folder)
    known = {site["name"] for site in listed}
    for name in dict.fromkeys(sites):
        if name in known:
            raise UserError(f"--site {name} has a key already: {folder / 'sites' / f'{name}.key'}")
        key = ec.generate_private_key(ec.SECP384R1())
        path = folder / "sites" / f"{name}.key"
        _write_private(path, key)
        listed.append({"name": name, "client": number, "public_key": public_text(key.public_key())})
        number += 1
        made.append(path)
    write_atomically(folder / "sites.json", json.dumps({"next": number, "sites": listed}, indent=1))
    return made


def site_list(folder: Path) -> list[dict[str, Any]]:
    """The sites that may join: name, client number, public key (PEM)."""
    return _listed(folder)[0]


class SiteList(Mapping[str, int]):
    """The client number of every key on the list as it stands now; the list may be added to while a server runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sites: dict[str, dict[str, Any]] = {}
        self.stamp = -1
        self.read()
        if not self.sites:
            raise UserError(
                f"--certs {folder} lists no site; let one in with: covey certs {folder} --site NAME"
            )

    def read(self) -> dict[str, dict[str, Any]]:
        """Reads the file again if it has changed; while somebody is editing it, what it said before holds."""
        path = self.folder / "sites.json"
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        if stamp != self.stamp:
            try:
                self.sites = {site["public_key"]: site for site in site_list(self.folder)}
                self.stamp = stamp
            except UserError:
                if self.stamp == -1:
                    raise
        return self.sites

    def names(self) -> dict[str, str]:
        """The name of every key."""
        return {key: site["name"] for key, site in self.read().items()}

    def __getitem__(self, key: str) -> int:
        return int(self.read()[key]["client"])

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())


def _listed(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The sites, and the number that the next one gets: entries may be taken out by hand."""
    path = folder / "sites.json"
    if not path.exists():
        return [], 0
    try:
        found = json.loads(path.read_text())
        sites = [
            {"name": str(s["name"]), "client": int(s["client"]), "public_key": str(s["public_key"])}
            for s in found["sites"]
        ]
        return sites, int(found["next"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'{path} is damaged ({type(error).__name__}: {error}); it must hold {{"next": NUMBER, "sites": [...]}}'
        ) from error


def public_text(key: Any) -> str:
    """A public key as PEM, which is how Flower spells it."""
    from cryptography.hazmat.primitives import serialization as form

    pem: bytes = key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def private_key(path: Path) -> Any:
    """A site's key."""
    from cryptography.hazmat.primitives import serialization as form

    try:
        return form.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise UserError(f"--key {path} is not a site's key of covey certs: {error}") from error


def _hosts(folder: Path) -> list[str]:
    """The names that the server's certificate has already."""
    from cryptography import x509

    if not (folder / "server.crt").exists():
        return []
    there = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    names = there.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [
        str(name.value)
        for name in names
        if name.value not in ("localhost", ipaddress.ip_address("127.0.0.1"))
    ]


def _server(folder: Path, hosts: Sequence[str]) -> list[Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    ca_key = form.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP384R1())
    return _write_pair(folder, "server", key, _certificate("covey server", key, (ca, ca_key), hosts))


def _certificate(
    name: str, key: Any, issuer: tuple[Any, Any] | None = None, hosts: Sequence[str] = ()
) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is None:
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
    else:
        names = [_host(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key()), critical=False
        )
    return builder.sign(issuer[1] if issuer else key, hashes.SHA384())


def _host(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_pair(folder: Path, name: str, key: Any, certificate: Any) -> list[Path]:
    from cryptography.hazmat.primitives import serialization as form

    paths = [folder / f"{name}.key", folder / f"{name}.crt"]
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    write_atomically(paths[1], certificate.public_bytes(form.Encoding.PEM))
    write_secret(paths[0], secret)  # last: where there is a key, there is its certificate
    return paths


def _write_private(path: Path, key: Any) -> None:
    from cryptography.hazmat.primitives import serialization as form

    write_secret(path, key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()))
