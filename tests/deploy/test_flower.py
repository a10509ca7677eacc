"""What surrounds Flower and needs no waiting: keys, the door, the commands' mistakes."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import covey
from covey.cli import app
from covey.cli.serve import loaded
from covey.deploy.door import is_open
from covey.errors import UserError


@pytest.mark.parametrize(
    ("path", "opens"),
    [
        ("/v1/fleet/pull-messages", True),
        ("/v1/control/start-run", False),
        ("/v1/runtime/acquire-task", False),
        ("/docs", False),
        ("/v1/fleet/../control/start-run", False),
        ("/v1/fleet/%2e%2e/control/start-run", False),
        ("/v1/fleet%2fx", False),
        ("/v1/fleet/x?y=/v1/control/start-run", False),
        ("http://127.0.0.1/v1/control/start-run", False),
    ],
)
def test_the_door_lets_only_the_fleet_interface_through(path: str, opens: bool) -> None:
    assert is_open(path) is opens


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["join", "nowhere", "--data", "x.py:load"], "the address is 'nowhere'; it must look like HOST:PORT"),
        (["join", "https://fl.example.org:9440", "--data", "x.py:load"], "it must look like HOST:PORT"),
        (["join", "fl.example.org:94400", "--data", "x.py:load"], "it must look like HOST:PORT"),
        (["serve"], "FILE is missing: a TOML file as for covey run, or --resume with a run's folder"),
        (
            ["join", "fl.example.org:1", "--data", "x.py:load", "--insecure"],
            "--insecure works only on loopback; the address is 'fl.example.org:1'",
        ),
        (
            ["join", "localhost:1", "--data", "x.py:load"],
            "--key is missing; a site makes its own with: covey certs request NAME",
        ),
        (
            ["join", "localhost:1", "--data", "x.py:load", "--insecure", "--budget", "inf"],
            "--budget is inf; allowed: a number above 0",
        ),
        (["serve", "run.toml", "--or-resume"], "--or-resume needs --out"),
        (["serve", "--resume", "nowhere", "--set", "a=1"], "--resume uses the folder's own settings"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UserError)
    assert sentence in str(result.exception)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def load():\n    return open('gone.pt')\n", "own.py, line 2: FileNotFoundError: "),
        ("def load(:\n", "own.py, line 1: SyntaxError: "),
        ("def read():\n    return 1\n", "own.py has no function load"),
    ],
)
def test_a_mistake_in_the_users_own_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(UserError) as mistake:
        loaded(f"{tmp_path / 'own.py'}:load", "site-0")
    assert sentence in str(mistake.value)


@pytest.mark.parametrize("where", ["own.py", "own.txt:load", ":load"])
def test_a_data_function_is_a_python_file_and_a_name(where: str) -> None:
    with pytest.raises(UserError, match=r"it must be FILE\.py:FUNCTION"):
        loaded(where, "site-0")
    with pytest.raises(UserError, match=r"but nowhere\.py does not exist"):
        loaded("nowhere.py:load", "site-0")


def test_a_data_function_may_ask_for_the_sites_name(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def plain():\n    return 1\n\n\ndef told(name):\n    return name\n")
    assert loaded(f"{tmp_path / 'own.py'}:plain", "site-3") == 1
    assert loaded(f"{tmp_path / 'own.py'}:told", "site-3") == "site-3"


pytest.importorskip("flwr")
from covey.deploy.certs import make_certs  # noqa: E402
from covey.deploy.site_list import SiteList  # noqa: E402
from tests.deploy.listed import site_list  # noqa: E402


def test_a_sites_number_stays_when_others_are_added(tmp_path: Path) -> None:
    make_certs(tmp_path, hosts=["fl.example.org"], sites=["b", "a"])
    before = (tmp_path / "ca.crt").read_bytes(), (tmp_path / "sites" / "b.key").read_bytes()
    make_certs(tmp_path, hosts=[], sites=["c"])
    assert before == ((tmp_path / "ca.crt").read_bytes(), (tmp_path / "sites" / "b.key").read_bytes())
    listed = site_list(tmp_path)
    assert [(site["name"], site["client"]) for site in listed] == [("b", 0), ("a", 1), ("c", 2)]


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    make_certs(tmp_path, hosts=[], sites=["a", "b"])
    for out, rest in (("a", [1, 2]), ("c", [1, 3])):
        kept = json.loads((tmp_path / "sites.json").read_text())
        kept["sites"] = [site for site in kept["sites"] if site["name"] != out]  # by hand, as docs say
        (tmp_path / "sites.json").write_text(json.dumps(kept))
        make_certs(tmp_path, hosts=[], sites=["c" if out == "a" else "d"])
        assert [site["client"] for site in site_list(tmp_path)] == rest


@pytest.mark.parametrize("text", ["[", "[]", '{"next": 1, "sites": [{"name": "a"}]}', '{"sites": []}'])
def test_a_damaged_list_of_sites_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "sites.json").write_text(text)
    with pytest.raises(UserError, match=r"sites\.json is damaged"):
        site_list(tmp_path)


def test_a_server_with_keys_and_no_site_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_certs(tmp_path / "certs", hosts=[], sites=[])
    (tmp_path / "run.toml").write_text("")
    result = CliRunner().invoke(app, ["serve", "run.toml", "--out", "run"])
    assert isinstance(result.exception, UserError)
    assert "--certs certs lists no site; let one in with: covey certs sign certs NAME.csr" in str(
        result.exception
    )
    assert not (tmp_path / "run").exists()


def test_the_list_of_sites_is_read_again_when_it_changes(tmp_path: Path) -> None:
    make_certs(tmp_path, hosts=[], sites=["a"])
    listed = SiteList(tmp_path)
    make_certs(tmp_path, hosts=[], sites=["b"])
    assert list(listed.names().values()) == ["a", "b"]
    assert list(listed.values()) == [0, 1]
    (tmp_path / "sites.json").write_text("half of")  # somebody is editing it
    assert list(listed.values()) == [0, 1]


def test_the_names_of_the_servers_certificate_add_up(tmp_path: Path) -> None:
    from cryptography import x509

    make_certs(tmp_path, hosts=["a.example.org", "192.0.2.7"], sites=[])
    make_certs(tmp_path, hosts=["b.example.org"], sites=[])
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(name.value) for name in names]
    assert found == ["a.example.org", "192.0.2.7", "b.example.org", "localhost", "127.0.0.1"]


def test_the_version_is_one_line() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"{covey.__version__}\n")


def test_a_proxy_in_the_environment_is_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from urllib.request import proxy_bypass

    from covey.deploy.superlink import keep_at_home

    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://proxy.example.org:3128")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "example.com")
    assert not proxy_bypass("127.0.0.1")
    keep_at_home()
    assert proxy_bypass("127.0.0.1")
    assert proxy_bypass("example.com")
    assert not proxy_bypass("fl.example.org")


def test_a_ca_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    from covey.deploy.connection import trust

    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(UserError, match=r"--ca .*ca\.crt cannot be read"):
        trust(tmp_path / "ca.crt")


def test_secrets_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "a.key.tmp").write_text("left by a crash, open to all")
    make_certs(tmp_path, hosts=[], sites=["a"])
    for name in ("ca.key", "server.key", "sites/a.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_reply_that_is_not_coveys_is_a_letter_without_an_answer() -> None:
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from covey.deploy.flower.grid import GridTransport, to_record

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    class Grid:
        def pull_messages(self, numbers: Any) -> list[Message]:
            contents = (to_record(b"ours"), RecordDict({}), RecordDict({"covey": ConfigRecord({"block": 1})}))
            question = Message(to_record(b""), dst_node_id=7, message_type="query.hello")
            messages = []
            for number, content in enumerate(contents):
                question.metadata.__dict__["_message_id"] = str(number)
                messages.append(Message(content, reply_to=question))
            return messages

    responses = GridTransport(Grid()).collect(["0", "1", "2"], most=100, until=0.0)
    assert responses["0"].answer == b"ours"
    for number in ("1", "2"):
        assert responses[number].answer == b""
        assert "the message is not covey's" in responses[number].error


def test_the_servers_certificate_is_the_cas_and_names_its_hosts(tmp_path: Path) -> None:
    from cryptography import x509

    make_certs(tmp_path, hosts=["fl.example.org", "192.0.2.7"], sites=[])
    ca, server = (
        x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes()) for name in ("ca", "server")
    )
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]


def test_bytes_go_through_a_flower_record_unchanged() -> None:
    from covey.deploy.flower.grid import from_record, to_record

    assert from_record(to_record(bytes(range(256)))) == bytes(range(256))


def test_a_client_app_answers_covey_and_nothing_else(tmp_path: Path) -> None:
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from covey.core.codec import from_bytes, to_bytes
    from covey.data import load
    from covey.deploy.flower.grid import from_record, to_record
    from covey.flower import client_app

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    client = client_app(lambda _: load("digits"))
    node = {"name": "here", "state": str(tmp_path)}
    context = Context(run_id=1, node_id=7, node_config=node, state=RecordDict(), run_config={})
    block = to_bytes({"covey": covey.__version__, "hello": True})
    hello = Message(to_record(block), dst_node_id=7, message_type="query.hello")
    answer = from_bytes(from_record(client(hello, context).content))
    assert (answer["name"], answer["shape"], answer["classes"]) == ("here", [1, 8, 8], 10)
    with pytest.raises(ValueError, match="No train function registered with name 'steal'"):
        client(Message(to_record(block), dst_node_id=7, message_type="train.steal"), context)


def test_a_client_app_keeps_its_budget(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from covey.core.codec import from_bytes
    from covey.data import load
    from covey.deploy.flower.grid import from_record, to_record
    from covey.deploy.wire import step_to_plain
    from covey.flower import client_app
    from covey.parts.steps.privacy import Privacy
    from covey.parts.steps.summaries import LabelSummary
    from tests.deploy.one_request import one_request

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    client = client_app(lambda _: load("digits"), budget=1.0)
    node = {"name": "here", "state": str(tmp_path)}
    context = Context(run_id=1, node_id=7, node_config=node, state=RecordDict(), run_config={})

    def ask(run: str, privacy: Privacy) -> Any:
        block = one_request(step=step_to_plain(LabelSummary(privacy=privacy)), run=run)
        message = Message(to_record(block), dst_node_id=7, message_type="query.labels")
        return from_bytes(from_record(client(message, context).content))

    assert ask("a", Privacy(epsilon=0.6))["reply"]["stats"]["epsilon"] == 0.6
    assert "0.6 of the budget of 1 is spent" in ask("b", Privacy(epsilon=0.6))["refused"]
    assert "no privacy loss that can be counted" in ask("c", Privacy())["refused"]
    with pytest.raises(UserError, match="budget is nan; allowed: a number above 0"):
        client_app(lambda _: load("digits"), budget=float("nan"))


def test_a_state_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext
    from types import SimpleNamespace

    import httpx
    from flwr.supercore.primitives.asymmetric import generate_key_pairs

    from covey.deploy import connection

    away = SimpleNamespace(_client=httpx.Client(), ActivateNode=lambda _: SimpleNamespace(node_id=5))
    monkeypatch.setattr(
        connection.insides.FleetHttpClient, "from_server_address", lambda *_: nullcontext(away)
    )
    note = tmp_path / "gone" / "node"
    with (
        pytest.raises(UserError, match="gone cannot be written: No such file or directory"),
        connection.connected("127.0.0.1:1", None, generate_key_pairs()[0], note),
    ):
        pass
