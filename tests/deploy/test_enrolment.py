"""Keys where they belong: made at the site, signed by the CA, admitted by the server, revoked at once."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from covey.cli import app
from covey.errors import UserError

pytest.importorskip("cryptography")
from covey.deploy.certs import make_certs, private_key, public_text
from covey.deploy.enrolment import admit, renew, request, revoke, sign
from covey.deploy.site_list import SOON, SiteList, listed_sites
from tests.deploy.listed import site_list


@pytest.fixture
def server(tmp_path: Path) -> Path:
    make_certs(tmp_path / "server", hosts=["fl.example.org"])
    return tmp_path / "server"


def enrolled(server: Path, name: str, at: Path | None = None) -> Path:
    """A site's key, made at the site and signed by the server's administrator."""
    secret, asking = request(at or server.parent / name, name)
    sign(server, asking)
    return secret


def test_a_site_makes_its_own_key_and_the_server_never_sees_it(server: Path, tmp_path: Path) -> None:
    secret = enrolled(server, "hospital-a")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    key = private_key(secret)
    assert [(s["name"], s["client"], s["public_key"]) for s in site_list(server)] == [
        ("hospital-a", 0, public_text(key.public_key()))
    ]
    assert not list(server.rglob("hospital-a.key"))
    for path in server.rglob("*"):
        assert path.is_dir() or secret.read_bytes() not in path.read_bytes()


def test_the_certificate_is_the_cas_word_for_a_year(server: Path) -> None:
    from cryptography import x509

    enrolled(server, "a")
    made = x509.load_pem_x509_certificate((server / "sites" / "a.crt").read_bytes())
    made.verify_directly_issued_by(x509.load_pem_x509_certificate((server / "ca.crt").read_bytes()))
    assert made.subject.rfc4514_string() == "CN=a"
    left = made.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=364) < left <= timedelta(days=365)


def test_the_ca_may_lie_on_another_machine(server: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    for name in ("ca.key", "ca.crt"):
        (vault / name).write_bytes((server / name).read_bytes())
    (server / "ca.key").unlink()
    secret, asking = request(tmp_path / "site", "a")
    with pytest.raises(
        UserError, match=r"ca\.key is not here, and only the CA can sign: run this where it is"
    ):
        sign(server, asking)
    assert site_list(server) == []
    admitted = admit(server, sign(vault, asking))
    assert (admitted.name, admitted.client) == ("a", 0)
    assert SiteList(server)[public_text(private_key(secret).public_key())] == 0
    before = (server / "ca.crt").read_bytes()
    make_certs(server, hosts=[])  # a missing key is not a missing CA
    assert (server / "ca.crt").read_bytes() == before


def test_a_certificate_of_another_ca_is_not_admitted(server: Path, tmp_path: Path) -> None:
    make_certs(tmp_path / "other", hosts=[])
    _, asking = request(tmp_path / "site", "a")
    with pytest.raises(UserError, match=r"a\.crt is not signed by this folder's CA"):
        admit(server, sign(tmp_path / "other", asking))
    with pytest.raises(UserError, match=r"a\.csr is not a certificate"):
        admit(server, asking)
    (server / "ca.crt").unlink()
    with pytest.raises(UserError, match=r"ca\.crt is not a certificate: No such file"):
        admit(server, sign(tmp_path / "other", asking))


def test_a_request_that_was_changed_is_not_signed(server: Path, tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as form

    _, asking = request(tmp_path / "site", "a")
    whole = bytearray(x509.load_pem_x509_csr(asking.read_bytes()).public_bytes(form.Encoding.DER))
    whole[whole.index(b"\x0c\x01a") + 2] = ord("b")  # another name under the same signature
    changed = x509.load_der_x509_csr(bytes(whole)).public_bytes(form.Encoding.PEM)
    asking.write_bytes(changed)
    with pytest.raises(UserError, match="is not signed with its own key"):
        sign(server, asking)
    asking.write_text("no request")
    with pytest.raises(UserError, match="is not a request of covey certs request"):
        sign(server, asking)


def test_a_revoked_site_is_shut_out_at_once_and_comes_back_with_a_new_key_and_its_number(
    server: Path,
) -> None:
    first = public_text(private_key(enrolled(server, "a")).public_key())
    other = public_text(private_key(enrolled(server, "b")).public_key())
    running = SiteList(server)
    assert (running.objection(first), running.objection(other)) == ("", "")
    revoke(server, "a")
    assert first not in running
    assert running.objection(first) == f"its key is revoked since {datetime.now(UTC):%Y-%m-%d}"
    assert running.objection(other) == ""
    with pytest.raises(UserError, match="the key of a was revoked; it must make a new one"):
        sign(server, server.parent / "a" / "a.csr")
    second = public_text(private_key(enrolled(server, "a", server.parent / "again")).public_key())
    assert dict(running) == {other: 1, second: 0}
    assert listed_sites(server)[1] == 2  # the next number
    with pytest.raises(UserError, match=r"no site 'c' is on the list of .*; there is: a, b"):
        revoke(server, "c")


def test_a_second_key_for_a_name_needs_the_first_to_be_revoked(server: Path) -> None:
    enrolled(server, "a")
    with pytest.raises(UserError, match="a has another key on the list; revoke that first"):
        enrolled(server, "a", server.parent / "thief")
    assert len(site_list(server)) == 1


def test_a_key_has_one_name(server: Path, tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.x509.oid import NameOID

    secret = enrolled(server, "a")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "b")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
    (tmp_path / "b.csr").write_bytes(
        asked.sign(private_key(secret), hashes.SHA384()).public_bytes(form.Encoding.PEM)
    )
    with pytest.raises(UserError, match="the key of b is that of a; it must make a new one"):
        sign(server, tmp_path / "b.csr")


def set_end(server: Path, days: float) -> None:
    kept = json.loads((server / "sites.json").read_text())
    kept["sites"][0]["until"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    (server / "sites.json").write_text(json.dumps(kept))


def test_a_certificate_ends_is_warned_of_and_renewed(server: Path) -> None:
    key = public_text(private_key(enrolled(server, "a")).public_key())
    running = SiteList(server)
    assert running.warnings() == []
    set_end(server, SOON - 1)
    assert key in running
    assert running.warnings() == [
        f"the certificate of a ends in 28 days; renew it with: covey certs renew {server} a"
    ]
    set_end(server, -1)
    assert running.objection(key) == "its key is expired"
    assert [(site.name, site.state()) for site in listed_sites(server)[0]] == [("a", "expired")]
    assert renew(server, []) == [server / "sites" / "a.crt"]
    assert dict(running) == {key: 0}
    with pytest.raises(UserError, match="no site 'c' is on the list"):
        renew(server, ["c"])


@pytest.mark.parametrize("name", ["", "a b", "../a", "a\x1b[2J", "ä", "a" * 81])
def test_a_name_is_one_of_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="at most 80 letters, digits, - and _ are allowed"):
        request(tmp_path, name)


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    secret, _ = request(tmp_path, "a")
    before = secret.read_bytes()
    with pytest.raises(UserError, match=r"a\.key exists already; a key that is in use is not replaced"):
        request(tmp_path, "a")
    assert secret.read_bytes() == before


def test_the_commands_and_the_old_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def covey(*words: str) -> str:
        result = CliRunner().invoke(app, ["certs", *words])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    covey("server", "--host", "fl.example.org")
    covey("request", "hospital-a")
    covey("sign", "server", "hospital-a.csr", "--days", "10")
    assert "hospital-a │ 0" in covey("list", "server")
    assert "keys of sites made here are for tests" in covey("make", "server", "--site", "test")
    assert "hospital-a (client 0) is shut out" in covey("revoke", "server", "hospital-a")
    assert "revoked" in covey("list", "server")
    covey("renew", "server", "--server")
    assert [site["name"] for site in site_list(Path("server"))] == ["test"]
    for words, sentence in [
        (["sign", "server", "hospital-a.csr", "--days", "0"], "--days is 0; allowed: from 1 to 3650"),
        (["revoke", "server", "nobody"], "no site 'nobody' is on the list of server; there is: test"),
    ]:
        assert sentence in str(CliRunner().invoke(app, ["certs", *words]).exception)


def test_what_is_there_stays_when_a_service_makes_it_again(tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    again = {"hosts": ["fl.example.org", "127.0.0.1"], "sites": ["a", "b"]}
    make_certs(tmp_path, **again)
    before = files()
    assert make_certs(tmp_path, **again) == []
    assert files() == before
    made = make_certs(tmp_path, hosts=["other.example.org"], sites=["a", "c"])
    assert [path.name for path in made] == ["server.key", "server.crt", "c.key"]
    revoke(tmp_path, "a")
    with pytest.raises(UserError, match=r"--site a is on the list of .* already, and its key cannot be used"):
        make_certs(tmp_path, hosts=[], sites=["a"])


def test_an_empty_certificate_is_one_sentence(server: Path) -> None:
    (server / "server.crt").write_bytes(b"")
    for words in (["list", str(server)], ["make", str(server), "--host", "covey.example.org"]):
        with pytest.raises(UserError, match=r"server\.crt is not a certificate: it is empty; take it away"):
            CliRunner().invoke(app, ["certs", *words], catch_exceptions=False)


def test_a_certificate_that_has_not_begun_is_not_admitted(server: Path, tmp_path: Path) -> None:
    from cryptography.x509 import CertificateBuilder

    begins = datetime.now(UTC) + timedelta(days=5)
    _, asking = request(tmp_path / "site", "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("covey.deploy.enrolment.enter", lambda _, site: site)
        patch.setattr("covey.deploy.enrolment.site_in", lambda made, ca, file: None)
        right = CertificateBuilder.not_valid_before
        patch.setattr(CertificateBuilder, "not_valid_before", lambda self, _: right(self, begins))
        later = sign(server, asking)
    with pytest.raises(
        UserError, match=rf"a\.crt is valid from {begins:%Y-%m-%d %H:%M} \(UTC\) on; admit it then"
    ):
        admit(server, later)


@pytest.mark.parametrize("host", ["evil host;rm", "a b", "", "x" * 300, "a..b", "-a", "a/b", "ä"])
def test_a_host_is_an_address_or_a_name(tmp_path: Path, host: str) -> None:
    with pytest.raises(UserError, match=r"--host is .*; allowed: an IP address, or a name of letters"):
        make_certs(tmp_path / "certs", hosts=[host])
    assert not (tmp_path / "certs").exists()
    with pytest.raises(UserError, match="--host is"):
        CliRunner().invoke(app, ["watch", str(tmp_path), "--host", host], catch_exceptions=False)


def test_usual_hosts_are_taken(tmp_path: Path) -> None:
    hosts = ["covey.example.org", "*.example.org", "10.0.0.7", "fe80::1", "my_server", "localhost"]
    make_certs(tmp_path / "certs", hosts=hosts)


def test_a_list_that_was_deleted_is_missed(server: Path, tmp_path: Path) -> None:
    secret, asking = request(tmp_path / "site", "a")
    sign(server, asking)
    key = public_text(private_key(secret).public_key())
    running = SiteList(server)
    (server / "sites.json").unlink()
    assert key in running  # a server continues with what the list said
    for act in (lambda: listed_sites(server), lambda: make_certs(server, hosts=[])):
        with pytest.raises(UserError, match=r"sites\.json is missing, though sites were let in \(a\)"):
            act()
    _, other = request(tmp_path / "site", "b")
    with pytest.raises(UserError, match=r"sites\.json is missing"):
        sign(server, other)
    (server / "sites.json").write_text('{"next": 0, "sites": []}')
    assert running.objection(key)
    assert sign(server, other).exists()
