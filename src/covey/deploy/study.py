"""A study: what a run over real sites is for and what it asks, signed by the server, in words that a site approves."""

import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.core.round import Method
from covey.core.shows import shows_of
from covey.data.schema import read_schema
from covey.deploy.http_connection import is_signed
from covey.errors import Refused, user_error
from covey.parts.steps.scale import TellScale
from covey.parts.steps.size import Size
from covey.parts.steps.take_home import TakeHome
from covey.runs.config import Config
from covey.settings.catalogue import STEPS

SERVER = "covey server"  # whose certificate it is; no site can be called so
OF_EVERY_RUN = (TakeHome, TellScale, Size)
MEASURING = "covey.parts.measure"
LEVELS = {
    "client": "whole sites are hidden in sums with noise",
    "local": "every site adds noise to its own update",
    "example": "single samples are hidden by noise in training",
}


@dataclass(frozen=True, kw_only=True)
class SiteStudy:
    """What was published: the text that is signed, and what it says."""

    text: str
    signature: str = ""
    certificate: str = ""

    @property
    def says(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def digest(self) -> str:
        """Another one for every change, and not for a new key of the server."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def plain(self) -> dict[str, str]:
        return {"text": self.text, "signature": self.signature, "certificate": self.certificate}


def study_of(config: Config, sites: int) -> SiteStudy | None:
    """The study of a configuration that says what it is for."""
    asked = config.sites
    if not asked.purpose:
        return None
    schema: Any = asked.schema
    if schema not in ("", "sites"):
        schema = read_schema(Path(schema)).plain()
    says = {
        "name": config.top.name or config.method_name,
        "purpose": asked.purpose,
        "contact": asked.contact,
        "method": config.method_name,
        "settings": {name: value for name, value in config["method"].items() if name != "name"},
        "train": dict(config["train"]),
        "model": dict(config["model"]),
        "data": config["data"]["name"],
        "schema": schema,
        "rounds": config.top.rounds,
        "sites": sites,
        "quorum": asked.quorum,
        "privacy": dict(config.tables.get("private", {})),
        "sees": seen(config),
        "steps": sorted(steps_of(config.method)),
    }
    return SiteStudy(text=json.dumps(says, sort_keys=True, default=str))


def seen(config: Config) -> list[str]:
    """Who sees what of a site, in words."""
    private = config.tables.get("private", {})
    if private.get("secure"):
        updates = "the server sees sums of updates, and no site's own"
    elif private.get("level") in ("local", "example"):
        updates = "the server sees every site's update, which has noise"
    else:
        updates = "the server sees every site's update (a model trained on its data) as it is"
    told = {found.what for part in nested_parts(config.method) if (found := shows_of(part)) and found.what}
    measured = "the server sees how good models are on a site's test data"
    return [
        updates,
        measured,
        *(f"the server sees {what}" for what in sorted(told)),
        "other sites see the models that come back",
    ]


def nested_parts(part: Any) -> Iterator[Any]:
    """A method's parts, and theirs."""
    yield part
    if is_dataclass(part) and not isinstance(part, type):
        part = tuple(getattr(part, f.name) for f in fields(part))
    elif hasattr(part, "func"):
        part = (part.func, *part.args, *part.keywords.values())
    for one in part if isinstance(part, tuple | list) else ():
        yield from nested_parts(one)


def steps_of(method: Method) -> set[str]:
    """Every kind of step that a method can ask for: those among its parts, and those that the parts' code names."""
    known, kinds, seen_modules = set(STEPS.values()), {step.kind for step in OF_EVERY_RUN}, set[str]()

    def of_module(name: str, depth: int) -> None:
        if name in seen_modules or name not in sys.modules or not (depth or name.startswith("covey.")):
            return
        seen_modules.add(name)
        for value in vars(sys.modules[name]).values():
            if isinstance(value, type) and value in known:
                kinds.add(value.kind)
            elif depth and inspect.isfunction(value) and value.__module__.startswith("covey."):
                of_module(value.__module__, 0)

    of_module(MEASURING, 1)
    for part in nested_parts(method):
        if type(part) in known:
            kinds.add(part.kind)
        of_module(part.__module__ if inspect.isfunction(part) else type(part).__module__, 1)
    return kinds


def signed_study(study: SiteStudy, certs: Path | None) -> SiteStudy:
    """The study with the server's signature; without keys, as it is."""
    if certs is None:
        return study
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    with user_error(f"--certs {certs} has no key of the server to sign the study with"):
        key = serialization.load_pem_private_key((certs / "server.key").read_bytes(), None)
        certificate = (certs / "server.crt").read_text(encoding="ascii")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signature = key.sign(study.text.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    return SiteStudy(text=study.text, signature=signature.hex(), certificate=certificate)


def verified(plain: Any, ca: Path | None) -> SiteStudy:
    """The study as it came, whose signature is that of a server of this CA; a refusal in one sentence."""
    try:
        study = SiteStudy(**{name: str(plain[name]) for name in ("text", "signature", "certificate")})
        if not isinstance(study.says, dict):
            raise ValueError("it says nothing")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Refused(f"the study cannot be read: {error}") from error
    if ca is None:
        return study
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.x509.oid import NameOID

    from covey.deploy.certs import public_text

    try:
        made = x509.load_pem_x509_certificate(study.certificate.encode())
        made.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.read_bytes()))
        names = [str(name.value) for name in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except (OSError, ValueError, TypeError, InvalidSignature) as error:
        raise Refused(f"the study is not signed by a server of {ca}") from error
    if names != [SERVER] or made.not_valid_after_utc < datetime.now(UTC):
        raise Refused("the study is signed with a certificate that is not a server's, or has expired")
    if not is_signed(public_text(made.public_key()), study.text, bytes.fromhex(study.signature)):
        raise Refused("the study was changed after it was signed")
    return study


def study_in_words(study: SiteStudy) -> list[str]:
    """The study for a person who decides about it."""
    says = study.says
    schema = says["schema"]
    if isinstance(schema, Mapping):
        columns = "the columns of the agreed schema: " + ", ".join(str(c["name"]) for c in schema["columns"])
    elif schema == "sites":
        columns = "tables; each site tells names, kinds, categories, ranges and sums of its columns first"
    else:
        columns = f"samples as those of {says['data']}"
    quorum = f", at least {says['quorum']} of them in every round" if says["quorum"] else ""
    return [
        f"study: {says['name']} ({study.digest[:16]})",
        f"purpose: {says['purpose']}",
        f"contact: {says['contact']}",
        f"method: {says['method']} with the model {says['model']['name']}",
        f"size: {says['rounds']} rounds, {says['sites']} sites{quorum}",
        f"data: {columns}",
        *privacy_words(says["privacy"]),
        *(f"who sees what: {line}" for line in says["sees"]),
        f"what may be asked: {', '.join(says['steps'])}; nothing else is answered",
    ]


def privacy_words(private: Mapping[str, Any]) -> list[str]:
    """What is lost per sample and per person."""
    if not private or (private.get("epsilon") is None and private.get("noise") is None):
        return [
            "privacy: no noise; what updates tell of a sample or a person is not bounded",
        ]
    epsilon = private.get("epsilon")
    amount = f"epsilon {epsilon:g}" if epsilon is not None else f"what noise {private['noise']:g} makes of it"
    lines = [
        f"privacy: {LEVELS.get(str(private.get('level')), 'noise')}; {amount} at delta {private.get('delta')}"
    ]
    if private.get("level") == "example":
        person = "that many times as much, by the number of its rows, which is for the site to count"
        return [
            *lines,
            f"privacy per sample: {amount}",
            f"privacy per person: with several rows up to {person}",
        ]
    if private.get("level") == "local":
        return [
            *lines,
            f"privacy per sample and per person: at most {amount}, as a whole site's data are hidden",
        ]
    return [
        *lines,
        f"privacy per site: {amount}, whether it participates or not",
        "privacy per sample and per person: what half of that noise gives (8 for a site is up to 19), as other data of "
        "a site move a sum twice as far as no data",
    ]
