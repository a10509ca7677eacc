"""A study: signed, in plain words, approved by a person; a site then answers that and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from covey.cli import consent as commands
from covey.core.codec import from_bytes, to_bytes
from covey.core.needs import own_model_of
from covey.core.round import run_rounds
from covey.deploy.audit import checked_lines
from covey.deploy.certs import make_certs
from covey.deploy.consent import Consent, approve, keep_shown
from covey.deploy.site import Site
from covey.deploy.study import SiteStudy, signed_study, steps_of, study_in_words, study_of, verified
from covey.deploy.wire import message_type, step_to_plain
from covey.errors import Refused, UserError
from covey.parts.measure import Measuring
from covey.parts.steps.summaries import LabelSummary
from covey.runs.config import resolve
from covey.settings.catalogue import METHODS
from covey.testing import check_toml
from tests.deploy.one_request import one_request
from tests.deploy.sites_by_hand import Hand, deployed, shares, sites

SITES = {"purpose": "Which patients fall ill again", "contact": "trial@example.org", "quorum": 3}
TABLES: dict[str, Any] = {"rounds": 3, "data": {"clients": 4}, "method": {"name": "fedavg"}, "sites": SITES}


def study(**changes: Any) -> SiteStudy:
    found = study_of(resolve({**TABLES, **changes}), 4)
    assert found is not None
    return found


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    make_certs(tmp_path / "certs", hosts=["127.0.0.1"], sites=["a"])
    return tmp_path / "certs"


def test_a_run_without_a_purpose_is_no_study_and_a_purpose_needs_a_contact() -> None:
    assert study_of(resolve({**TABLES, "sites": {"quorum": 3}}), 4) is None
    with pytest.raises(UserError, match=r"sites.purpose and sites.contact go together"):
        resolve({**TABLES, "sites": {"purpose": "for fun"}})


def test_the_words_say_what_a_person_must_know() -> None:
    private = {"level": "example", "epsilon": 4.0, "delta": 1e-5, "clip": 1.0}
    said = "\n".join(study_in_words(study(private=private)))
    for part in (
        "purpose: Which patients fall ill again",
        "contact: trial@example.org",
        "method: fedavg with the model mlp",
        "size: 3 rounds, 4 sites, at least 3 of them in every round",
        "privacy per sample: epsilon 4",
        "privacy per person: with several rows up to that many times as much",
        "who sees what: the server sees every site's update, which has noise",
    ):
        assert part in said
    whole = "\n".join(study_in_words(study(private={"epsilon": 8.0})))
    assert "privacy per site: epsilon 8, whether it participates or not" in whole
    assert (
        "privacy per sample and per person: what half of that noise gives (8 for a site is up to 19)" in whole
    )
    assert "not bounded" in "\n".join(study_in_words(study()))
    assert "which model has the lowest loss on a client's data" in "\n".join(
        study_in_words(study(method={"name": "ifca"}))
    )


def test_a_signature_is_that_of_a_server_of_the_ca(certs: Path, tmp_path: Path) -> None:
    good = signed_study(study(), certs)
    assert verified(good.plain(), certs / "ca.crt").digest == study().digest
    with pytest.raises(Refused, match="was changed after it was signed"):
        verified({**good.plain(), "text": good.text.replace('"rounds": 3', '"rounds": 9')}, certs / "ca.crt")
    make_certs(tmp_path / "other", hosts=["127.0.0.1"])
    with pytest.raises(Refused, match="is not signed by a server of"):
        verified(good.plain(), tmp_path / "other" / "ca.crt")
    with pytest.raises(Refused, match="certificate that is not a server's"):
        verified({**good.plain(), "certificate": (certs / "ca.crt").read_text()}, certs / "ca.crt")
    for bad in ({}, {"text": "[", "signature": "", "certificate": ""}, None, "x"):
        with pytest.raises(Refused, match="cannot be read"):
            verified(bad, certs / "ca.crt")


def approved(folder: Path, one: SiteStudy, **terms: Any) -> Consent:
    keep_shown(folder, one)
    approve(folder, None, **{"by": "Dr. Anna Mayer", "budget": None, "cpu": None, **terms})
    return Consent(folder)


def test_only_what_was_shown_is_approved_and_the_trail_says_by_whom(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no study was shown"):
        approve(tmp_path, None, by="Dr. Anna Mayer", budget=None, cpu=None)
    given = approved(tmp_path, study(), budget=2.0, cpu=60.0)
    assert (given.by, given.budget) == ("Dr. Anna Mayer", 2.0)
    (line,) = checked_lines(tmp_path / "audit.jsonl")
    assert (line.facts["event"], line.facts["by"], line.facts["study"]) == (
        "approved",
        "Dr. Anna Mayer",
        study().digest,
    )
    with pytest.raises(UserError, match="--approve is empty"):
        approve(tmp_path, None, by=" ", budget=None, cpu=None)


def test_a_changed_study_needs_a_new_approval(tmp_path: Path) -> None:
    given = approved(tmp_path, study())
    given.greeted(study().plain())
    with pytest.raises(
        Refused, match=r"is not the one that Dr. Anna Mayer approved .*: another rounds; read it with"
    ):
        given.greeted(study(rounds=4).plain())
    with pytest.raises(Refused, match="the server names none"):
        given.greeted(None)
    with pytest.raises(Refused, match="is not approved at this site"):
        Consent(tmp_path / "new").greeted(study().plain())


def site(folder: Path) -> Site:
    share = shares()[0]
    return Site((share.train, share.test), name="site-0", folder=folder)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"study": "0" * 64}, "answers only the study that Dr. Anna Mayer approved"),
        ({"study": None}, "answers only the study that Dr. Anna Mayer approved"),
        ({"method": "scaffold"}, "the method is 'scaffold', and 'fedavg' was approved"),
        ({"round": 4}, "round 4 was asked for, and 3 rounds were approved"),
        (
            {"step": step_to_plain(LabelSummary())},
            "is not among the steps of the study",
        ),
    ],
)
def test_a_site_answers_nothing_beyond_the_study(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    approved(tmp_path, study())
    asked = {"study": study().digest, "method": "fedavg", **changes}
    answer = from_bytes(site(tmp_path).answer(one_request(**asked)))
    assert why in answer["refused"] if why else answer["reply"] is not None


def test_cpu_seconds_are_counted_over_restarts(tmp_path: Path) -> None:
    approved(tmp_path, study(), cpu=1e-6)
    asked = one_request(study=study().digest, method="fedavg")
    assert from_bytes(site(tmp_path).answer(asked))["reply"] is not None
    again = from_bytes(site(tmp_path).answer(asked))
    assert again["refused"] == "the study has used the 1e-06 CPU seconds that were approved"


def test_an_approved_budget_holds_where_the_option_is_forgotten(tmp_path: Path) -> None:
    approved(tmp_path, study(), budget=2.0)
    assert site(tmp_path).budget == 2.0


def test_a_study_runs_over_sites_that_approved_it(tmp_path: Path) -> None:
    for number in range(4):
        approved(tmp_path / str(number), study())
    fleet = deployed(Hand(sites(tmp_path)), study=study(), method="fedavg")
    done = run_rounds(check_toml("fedavg", {}), fleet, rounds=1, measure=Measuring())
    assert len(done.worked) == 4
    told = [
        line.facts for line in checked_lines(tmp_path / "0" / "audit.jsonl") if line.facts["event"] == "told"
    ]
    assert {line["study"] for line in told if line["kind"] != "query.hello"} == {study().digest}


IN_THE_GATE = ("cafa", "covey", "ditto", "haccs", "ifca", "pacfl", "power-of-choice", "scaffold")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in IN_THE_GATE else pytest.mark.slow)
        for n in METHODS
        if own_model_of(METHODS.find(n)) is None  # these sites have an mlp
    ],
)
def test_a_study_names_every_step_that_its_method_asks_for(name: str) -> None:
    method, hand = check_toml(name, {}), Hand(sites())
    run_rounds(method, deployed(hand), rounds=2, measure=Measuring())
    assert set(hand.kinds) - {"query.hello"} <= {message_type(kind) for kind in steps_of(method)}


def test_the_check_says_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site(tmp_path)
    greeting = {
        "covey": here.version,
        "protocol": list(here.speaks),
        "hello": True,
        "time": 0.0,
        "expects": {"shape": [1, 8, 8], "outputs": 3},
    }
    monkeypatch.setattr(commands.Server, "greeting", lambda _: from_bytes(to_bytes(greeting)))
    with pytest.raises(Exception, match="2 of 7 things do not fit: clock, schema"):
        commands.check(commands.Server(address="h:1", ca=None, key=None, folder=tmp_path), here)
    said = capsys.readouterr().out
    assert "version: yes" in said
    assert "schema: NO: the run's outputs is 3, this site's 10" in said


def test_the_published_file_is_read_again(
    certs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.json"
    file.write_text(json.dumps(signed_study(study(), certs).plain()))
    commands.show(
        commands.Server(address=str(file), ca=certs / "ca.crt", key=None, folder=tmp_path / "state")
    )
    assert "purpose: Which patients fall ill again" in capsys.readouterr().out
    assert (
        approve(tmp_path / "state", certs / "ca.crt", by="A", budget=None, cpu=None).digest == study().digest
    )
