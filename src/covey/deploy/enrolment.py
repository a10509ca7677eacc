"""How a site comes onto the list, and off it: it makes its own key and a request, the CA signs, the server admits.

The private key never leaves the site. The CA's key is needed to sign and to renew only, so it may lie on another
machine: there `sign` writes a certificate, and on the server `admit` checks it against `ca.crt`.
"""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from covey.deploy.certs import ca_of, certificate_of, public_text, write_private
from covey.deploy.site_list import ListedSite, check_name, listed_sites, write_list
from covey.errors import UserError, user_error
from covey.files import write_atomically

DAYS = 365  # that a site's certificate is valid


def request(folder: Path, name: str) -> list[Path]:
    """At the site: a private key that only its owner can read, and a request for the server's administrator."""
    check_name(name)
    secret, asking = folder / f"{name}.key", folder / f"{name}.csr"
    if secret.exists():
        raise UserError(f"{secret} exists already; a key that is in use is not replaced")
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA384())
    write_private(secret, key)
    write_atomically(asking, signed.public_bytes(form.Encoding.PEM))
    return [secret, asking]


def sign(folder: Path, file: Path, *, days: int = DAYS) -> Path:
    """Where the CA's key is: a certificate for the request, and the site on the list of this folder."""
    with user_error(f"{file} is not a request of covey certs request"):
        asked = x509.load_pem_x509_csr(file.read_bytes())
    if not asked.is_signature_valid:
        raise UserError(f"{file} is not signed with its own key")
    name = common_name(asked.subject, file)
    ca, secret = ca_of(folder)
    path = folder / "sites" / f"{name}.crt"
    made = certificate_of(name, asked.public_key(), (ca, secret), days=days)
    content = made.public_bytes(form.Encoding.PEM)
    enter(folder, site_in(made, ca, file))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def admit(folder: Path, file: Path) -> ListedSite:
    """On the server: puts the site of a certificate that this folder's CA signed onto the list."""
    with user_error(f"{file} is not a certificate"):
        made = x509.load_pem_x509_certificate(file.read_bytes())
    with user_error(f"{folder / 'ca.crt'} is not a certificate"):
        ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    site = enter(folder, site_in(made, ca, file))
    kept = folder / "sites" / f"{site.name}.crt"
    if not kept.exists() or not kept.samefile(file):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, file.read_bytes())
    return site


def site_in(made: Any, ca: Any, file: Path) -> ListedSite:
    """The site that a certificate names, after checking who signed it and when it is valid."""
    try:
        made.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise UserError(f"{file} is not signed by this folder's CA") from error
    key = made.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise UserError(f"{file} has another kind of key than covey certs request makes")
    since, until, now = (
        made.not_valid_before_utc,
        made.not_valid_after_utc,
        datetime.datetime.now(datetime.UTC),
    )
    if since > now:
        raise UserError(f"{file} is valid from {since:%Y-%m-%d %H:%M} (UTC) on; admit it then")
    if until < now:
        raise UserError(f"{file} ended on {until:%Y-%m-%d}; sign a new one")
    name = common_name(made.subject, file)
    return ListedSite(name=name, client=-1, public_key=public_text(key), until=until.isoformat())


def enter(folder: Path, site: ListedSite) -> ListedSite:
    """Puts a site onto the list: a new name gets the next number, a name that was there before keeps its own."""
    sites, number = listed_sites(folder)
    for other in sites:
        if other.public_key == site.public_key and (other.name != site.name or other.revoked):
            why = "was revoked" if other.revoked else f"is that of {other.name}"
            raise UserError(f"the key of {site.name} {why}; it must make a new one")
        if other.name == site.name and other.public_key != site.public_key and not other.revoked:
            raise UserError(
                f"{site.name} has another key on the list; revoke that first: covey certs revoke {folder} {site.name}"
            )
    same = [other for other in sites if other.name == site.name]
    given = replace(site, client=same[-1].client if same else number)
    kept = [other for other in sites if other.public_key != site.public_key]
    write_list(folder, [*kept, given], number + (not same))
    return given


def revoke(folder: Path, name: str) -> ListedSite:
    """Takes a site off at once: a running server answers none of its requests any more. Its number stays its own."""
    sites, number = listed_sites(folder)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    out = [site for site in sites if site.name == name and not site.revoked]
    if not out:
        known = ", ".join(sorted({site.name for site in sites if not site.revoked})) or "nobody"
        raise UserError(f"no site {name!r} is on the list of {folder}; there is: {known}")
    changed = [replace(site, revoked=now) if site in out else site for site in sites]
    write_list(folder, changed, number)
    return replace(out[0], revoked=now)


def renew(folder: Path, names: Sequence[str], *, days: int = DAYS) -> list[Path]:
    """Where the CA's key is: new certificates for the same keys; all sites that are not revoked where none is named."""
    sites, _ = listed_sites(folder)
    valid = {site.name: site for site in sites if not site.revoked}
    unknown = [name for name in names if name not in valid]
    if unknown:
        raise UserError(
            f"no site {unknown[0]!r} is on the list of {folder}; there is: {', '.join(valid) or 'nobody'}"
        )
    issuer = ca_of(folder)
    made = []
    for name in names or valid:
        key = form.load_pem_public_key(valid[name].public_key.encode())
        fresh = certificate_of(name, key, issuer, days=days)
        enter(folder, site_in(fresh, issuer[0], folder / "sites" / f"{name}.crt"))
        path = folder / "sites" / f"{name}.crt"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, fresh.public_bytes(form.Encoding.PEM))
        made.append(path)
    return made


def common_name(subject: Any, file: Path) -> str:
    """The site's name in a request or a certificate."""
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise UserError(f"{file} names no site")
    return check_name(str(names[0].value))
