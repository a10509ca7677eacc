"""Certificates and keys: a CA, the server's certificate, and for each site a key that says who it is."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from covey.deploy.site_list import ListedSite, check_name, listed_sites, write_list
from covey.errors import UserError, user_error
from covey.files import write_atomically
from covey.settings.hosts import check_host

YEARS = 5
ALWAYS = ("localhost", "127.0.0.1")  # names that every server has, for trying it out on its own machine


def make_certs(folder: Path, *, hosts: Sequence[str], sites: Sequence[str] = ()) -> list[Path]:
    """Makes what is not there yet: a CA, the server's certificate, and on this machine, for tests, keys of sites."""
    for name in sites:
        check_name(name)
    for host in hosts:
        check_host(host)
    (folder / "sites").mkdir(parents=True, exist_ok=True)
    if not (folder / "ca.crt").exists() and not (folder / "sites.json").exists():
        write_list(folder, [], 0)  # first, so that a list that is missing later is noticed
    made: list[Path] = []
    if not (folder / "ca.crt").exists():
        key = ec.generate_private_key(ec.SECP384R1())
        made += _write_pair(folder, "ca", key, _certificate("covey CA", key.public_key(), key))
    new = set(hosts) - {*_hosts(folder), *ALWAYS}
    if new or not (folder / "server.key").exists():
        made += server_certificate(folder, hosts)
    listed, number = listed_sites(folder)
    known = {site.name: site for site in listed}
    for name in dict.fromkeys(sites):
        path = folder / "sites" / f"{name}.key"
        if name in known:
            if known[name].welcome and path.exists():
                continue  # what is there stays
            raise UserError(f"--site {name} is on the list of {folder} already, and its key cannot be used")
        key = ec.generate_private_key(ec.SECP384R1())
        write_private(path, key)
        listed.append(ListedSite(name=name, client=number, public_key=public_text(key.public_key())))
        number += 1
        made.append(path)
    write_list(folder, listed, number)
    return made


def server_certificate(folder: Path, hosts: Sequence[str] = ()) -> list[Path]:
    """A new key and certificate of the server, for the names that it has and these; the sites need nothing new."""
    names = [*_hosts(folder), *hosts, *ALWAYS]
    key = ec.generate_private_key(ec.SECP384R1())
    return _write_pair(
        folder, "server", key, _certificate("covey server", key.public_key(), *ca_of(folder)[::-1], names)
    )


def ca_of(folder: Path) -> tuple[Any, Any]:
    """The CA's certificate and key; the key may lie elsewhere: one sentence then says that it is missing."""
    try:
        key = form.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), key
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename} is not here, and only the CA can sign: run this where it is, then bring the "
            "certificate here with covey certs admit"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} holds no CA of covey certs: {error}") from error


def certificate_of(name: str, key: Any, issuer: tuple[Any, Any], *, days: int) -> Any:
    """A site's certificate: the CA's word that this public key is that of the site of this name."""
    if not 1 <= days <= 3650:
        raise UserError(f"--days is {days}; allowed: from 1 to 3650")
    return _certificate(name, key, issuer[1], issuer[0], days=days)


def expiry(folder: Path) -> datetime.datetime:
    """When the server's certificate expires."""
    made = certificate_in(folder / "server.crt")
    return datetime.datetime.fromisoformat(made.not_valid_after_utc.isoformat())


def certificate_in(path: Path) -> Any:
    """A certificate in a file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        why = "it is empty" if isinstance(error, ValueError) and not path.stat().st_size else error
        raise UserError(
            f"{path} is not a certificate: {why}; take it away, and covey certs make makes a new one"
        ) from error


def public_text(key: Any) -> str:
    """A public key as PEM, which is how Flower spells it."""
    pem: bytes = key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def private_key(path: Path) -> Any:
    """A site's key."""
    with user_error(f"--key {path} is not a site's key of covey certs"):
        return form.load_ssh_private_key(path.read_bytes(), None)


def _hosts(folder: Path) -> list[str]:
    """The names that the server's certificate has already."""
    if not (folder / "server.crt").exists():
        return []
    try:
        there = certificate_in(folder / "server.crt").extensions
        names = there.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [str(name.value) for name in names if str(name.value) not in ALWAYS]


def _certificate(
    name: str,
    public: Any,
    signer: Any,
    issuer: Any = None,
    hosts: Sequence[str] = (),
    *,
    days: int = 365 * YEARS,
) -> Any:
    """A certificate for a public key, signed by the CA (without an issuer by itself: the CA's own)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
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
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    if hosts:
        names = [_host(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA384())


def _host(name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_pair(folder: Path, name: str, key: Any, certificate: Any) -> list[Path]:
    paths = [folder / f"{name}.key", folder / f"{name}.crt"]
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    write_atomically(paths[1], certificate.public_bytes(form.Encoding.PEM))
    write_atomically(paths[0], secret, mode=0o600)  # last: where there is a key, there is its certificate
    return paths


def write_private(path: Path, key: Any) -> None:
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    write_atomically(path, secret, mode=0o600)
