"""What a site tells of its data is told once, booked before it is told, and cannot be forgotten."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.core.codec import from_bytes
from covey.core.privacy_loss import Loss
from covey.data.types import Scale
from covey.deploy.privacy_account import PrivacyAccount
from covey.deploy.site import Site
from covey.deploy.site_data import SiteData
from covey.deploy.wire import step_to_plain
from covey.errors import Refused, UserError
from covey.methods.embedding import embedding
from covey.parts.portraits.portrait import DescribeClasses
from covey.parts.steps.embedding import Embed, Spending, answers_of_bytes, unpack
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import LabelSummary
from covey.privacy.sketch import SketchClasses, class_table
from covey.training.models.encoders import autoencoder
from tests.deploy.one_request import SPEC, one_request
from tests.deploy.sites_by_hand import CLIENTS, DATA, Hand, deployed, shares, sites

EMBED = Embed(autoencoder="ae-fc", flip=(0.2,))
CLASSES, CODE = 10, 20


def encoder(seed: int = 0) -> torch.Tensor:
    """The row of an encoder for the digits."""
    from covey.training.models.encoders import encoder as without_decoder
    from covey.training.rows import read_row

    return read_row(without_decoder(autoencoder("ae-fc", (1, 8, 8), DATA.dataset.scale, seed)))


def a_site(folder: Path | None, **settings: Any) -> Site:
    share = shares()[0]
    return Site((share.train, share.test), name="site-0", folder=folder, **settings)


def bits(
    site: Site, *, run: str = "r", session: str = "s", row: torch.Tensor | None = None, **changes: Any
) -> Any:
    """What the site answers to the question for its noisy bits."""
    row = encoder() if row is None else row
    step = step_to_plain(replace(EMBED, **changes))
    block = one_request(
        step=step, run=run, session=session, task={"models": row[None], "slots": (0,), "args": {}}
    )
    answer = from_bytes(site.answer(block))
    return answer["reply"]["stats"] if answer.get("reply") else answer["refused"] or answer["mistake"]


# ---------------------------------------------------------------------------------------------- told once


def test_25_sessions_and_a_majority_vote_give_no_more_than_one_session(tmp_path: Path) -> None:
    """New runs, restarted servers and restarted sites: the answer stays what it was."""
    said = []
    for number in range(25):
        site = a_site(tmp_path)
        said.append(unpack(bits(site, run=f"run-{number // 3}", session=f"session-{number}")["bits"]))
    vote = np.mean(said, axis=0) > 0.5
    truth = unpack(bits(a_site(tmp_path), flip=(0.0,))["bits"])
    wrong = [float((np.asarray(answer) != truth).mean()) for answer in (said[0], vote)]
    assert wrong[0] == wrong[1]
    assert 0.05 < wrong[0] < 0.35  # every fifth of 200 bits is a lie, and stays one


def test_a_server_that_takes_back_a_round_gets_the_same_answer(tmp_path: Path) -> None:
    site = a_site(tmp_path)
    first = bits(site, session="before the crash")
    second = bits(site, session="after the crash")
    assert first["bits"].tolist() == second["bits"].tolist()
    assert first["epsilon"] == second["epsilon"]


SUMMARY = step_to_plain(LabelSummary(privacy=Privacy(epsilon=0.25)))


@pytest.mark.parametrize("restarted", [False, True])
def test_an_answer_with_fresh_noise_that_is_asked_for_again_is_the_same_and_costs_nothing(
    tmp_path: Path, restarted: bool
) -> None:
    """It was lost, or the server continues after a crash: new noise would be a second loss."""
    site, answers = a_site(tmp_path, budget=1.0), []
    for session in ("before the crash", "before the crash", "after the crash"):
        answers.append(site.answer(one_request(step=SUMMARY, session=session, task={"args": {}})))
        site = a_site(tmp_path, budget=1.0) if restarted else site
    assert answers == [answers[0]] * 3
    assert site.account.epsilon == pytest.approx(0.25)


@pytest.mark.parametrize(
    "changes", [{"round": 2}, {"run": "another"}, {"names": ("run", "x", 2, "round", 1)}]
)
def test_another_question_has_noise_of_its_own_and_is_paid_for(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    site = a_site(tmp_path, budget=1.0)
    one, other = (site.answer(one_request(step=SUMMARY, task={"args": {}}, **more)) for more in ({}, changes))
    assert one != other
    assert site.account.epsilon == pytest.approx(0.5)


def test_a_server_that_asks_without_end_takes_no_memory(tmp_path: Path) -> None:
    site = a_site(tmp_path)
    for number in range(40):
        site.answer(one_request(step=SUMMARY, task={"args": {}}, names=("run", "x", number, "round", 1)))
    assert len(site.memory.runs["r"]["paid"]) == 16


def test_a_replayed_question_of_an_earlier_round_is_paid_for_within_the_budget(tmp_path: Path) -> None:
    """A malicious server may ask in any order; the account does not care."""
    site = a_site(tmp_path, budget=0.6)
    asked = [one_request(step=SUMMARY, task={"args": {}}, round=number) for number in (1, 2, 1)]
    answers = [from_bytes(site.answer(block)) for block in asked]
    assert [answer.get("reply") is not None for answer in answers] == [True, True, False]
    assert "0.5 of the budget of 0.6 is spent" in answers[2]["refused"]


def test_17_other_runs_later_the_answer_is_the_same(tmp_path: Path) -> None:
    site = a_site(tmp_path)
    first = bits(site, run="first")
    for number in range(17):
        site.answer(one_request(run=f"other-{number}"))
    assert not list(tmp_path.glob("run-first*"))  # its state is forgotten, its answer is not
    assert bits(site, run="first")["bits"].tolist() == first["bits"].tolist()


def test_a_question_is_paid_for_once_and_another_one_again(tmp_path: Path) -> None:
    site = a_site(tmp_path)
    loss = Spending(flip=0.2, bits=CLASSES * CODE, classes=CLASSES).sample
    assert loss == pytest.approx(20 * np.log(4))  # 20 bits of a class, ln(0.8 / 0.2) each
    assert [bits(site)["epsilon"] for _ in range(3)] == pytest.approx([loss] * 3)
    nudged = encoder() + 1e-7
    assert bits(site, row=nudged)["epsilon"] == pytest.approx(2 * loss)
    assert bits(site, flip=(0.21,))["epsilon"] == pytest.approx(2 * loss + 20 * np.log(0.79 / 0.21))
    assert bits(site)["epsilon"] == site.account.epsilon  # known already


def test_with_a_budget_a_server_cannot_ask_around_it(tmp_path: Path) -> None:
    site = a_site(tmp_path, budget=30.0)
    assert isinstance(bits(site), dict)
    for number in range(5):
        assert "27.7259 of the budget of 30 is spent" in bits(site, row=encoder() + (number + 1) * 1e-6)
    assert isinstance(bits(site), dict)  # the first question can be asked for ever
    assert "no privacy loss that can be counted" in bits(site, flip=(0.0,))


def portrait(site: Site, *, round: int = 1, **changes: Any) -> Any:
    """What the site answers to the question for its portrait."""
    step = DescribeClasses(**{"flip": 0.25, "privacy": Privacy(epsilon=4.0)} | changes)
    answer = from_bytes(site.answer(one_request(step=step_to_plain(step), round=round)))
    return answer["reply"]["stats"] if answer.get("reply") else answer["refused"] or answer["mistake"]


def test_a_portrait_is_booked_with_its_bits_and_repeats_its_lies(tmp_path: Path) -> None:
    """Bits are paid for once, 6,144 of a class at ln 3 each; label counts, drawn anew, each round."""
    site = a_site(tmp_path)
    first, second = portrait(site), portrait(a_site(tmp_path), round=2)
    assert first["bits"].tolist() == second["bits"].tolist()
    assert first["epsilon"] == pytest.approx(6144 * np.log(3) + 4)
    assert second["epsilon"] == pytest.approx(6144 * np.log(3) + 8)


def test_a_budget_covers_the_bits_of_a_portrait_and_not_only_its_counts(tmp_path: Path) -> None:
    site = a_site(tmp_path, budget=30.0)
    assert "a summary of epsilon 6749.87 is refused" in portrait(site)
    assert "no privacy loss that can be counted" in portrait(site, flip=0.0)
    assert site.account.epsilon == 0.0


def class_sums(site: Site, scale: Scale | None = None, *, schema: Any = None) -> Any:
    """What the site answers to the question for its class sums, its samples standardised as the server says."""
    model = replace(SPEC, scale=scale).plain()
    step = step_to_plain(SketchClasses(epsilon=0.5))
    answer = from_bytes(site.answer(one_request(step=step, model=model, schema=schema)))
    return np.asarray(answer["reply"]["stats"]["sums"]) if answer.get("reply") else answer["refused"]


def test_samples_that_are_made_to_look_different_are_another_question(tmp_path: Path) -> None:
    """Else their noise were the same, and a server that moves all samples by 1e9 read it off: all are one vector."""
    site, far = a_site(tmp_path), Scale((1e9,), (1.0,))
    as_they_are, moved = class_sums(site), class_sums(site, far)
    exact = [class_table_of(scale)[:, :-1] for scale in (None, far)]
    noise = as_they_are - exact[0]
    assert np.std(moved - exact[1]) == pytest.approx(np.std(noise), rel=0.2)
    assert abs(np.corrcoef(noise.ravel(), (moved - exact[1]).ravel())[0, 1]) < 0.2
    assert class_sums(a_site(tmp_path), far).tolist() == moved.tolist()  # the same question, asked again
    assert sum(site.account.told.values()) == 2


def test_a_budget_ends_a_server_that_looks_at_the_same_samples_in_many_ways(tmp_path: Path) -> None:
    site = a_site(tmp_path, budget=1.0)
    answers = [class_sums(site, Scale((float(number),), (1.0,))) for number in range(6)]
    assert [isinstance(answer, str) for answer in answers] == [False] * 3 + [True] * 3
    assert "more than all of the budget of 1 would be spent" in answers[3]


def class_table_of(scale: Scale | None) -> Any:
    """The site's class sums without noise."""
    share = shares()[0]
    x, y = SiteData.of((share.train, share.test)).scaled(scale).train_samples.tensors()
    return class_table(x.float(), y.numpy(), CLASSES, 64)


def test_two_sites_with_the_same_data_do_not_lie_alike(tmp_path: Path) -> None:
    said = [bits(a_site(tmp_path / name))["bits"].tolist() for name in ("a", "b")]
    assert said[0] != said[1]


def test_other_data_are_another_question(tmp_path: Path) -> None:
    share = shares()[0]
    first = a_site(tmp_path)
    bits(first)
    spent = first.account.epsilon
    fewer = Site((share.train.select(slice(1, None)), share.test), name="site-0", folder=tmp_path)
    assert bits(fewer)["epsilon"] == pytest.approx(2 * spent)


def test_bits_lie_with_the_probability_that_was_asked_for() -> None:
    rng = np.random.default_rng(1)
    table = answers_of_bytes((40_000,), 0.3, rng.bytes(16 * 40_000))
    assert table[0].mean() == pytest.approx(0.3, abs=0.01)  # a 0 that says 1
    assert 1 - table[1].mean() == pytest.approx(0.3, abs=0.01)
    edge = np.array([0, int(0.3 * 2**64) - 1, int(0.3 * 2**64), 2**64 - 1], "<u8").tobytes()
    assert answers_of_bytes((2,), 0.3, edge).tolist() == [
        [1, 1],
        [1, 1],
    ]  # two lies of zeros, two truths of ones


def test_a_whole_method_over_sites_with_a_folder(tmp_path: Path) -> None:
    from covey.core.round import run_rounds
    from covey.parts.steps import Train

    method = embedding(Train(lr=0.1), per_round=CLIENTS, flip=0.1, pretrain_rounds=1, pretrain_epochs=1)
    told = []
    for _ in range(
        2
    ):  # the same server, started anew: the same encoder, the same answers, nothing more to pay
        fleet = deployed(Hand(sites(tmp_path)))
        told.append((dict(run_rounds(method, fleet, rounds=1).groups), dict(fleet.ledger.epsilon)))
    assert told[0] == told[1]


# ---------------------------------------------------------------------------------------------- booked when asked


def summary(site: Site, epsilon: float, number: int = 1) -> Any:
    step = step_to_plain(LabelSummary(privacy=Privacy(epsilon=epsilon)))
    return from_bytes(site.answer(one_request(step=step, round=number, task={"args": {}})))


def test_a_loss_is_on_disk_before_the_noise_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("covey.parts.steps.summaries.add_noise", dies)
    with pytest.raises(KeyboardInterrupt):
        summary(a_site(tmp_path), 0.6)
    assert (tmp_path / "epsilon").read_text() == "0.6"


def test_what_cannot_be_booked_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: object, *, mode: int) -> None:
        raise OSError(28, "No space left on device", str(path))

    site = a_site(tmp_path)
    monkeypatch.setattr("covey.deploy.privacy_account.write_atomically", full)
    answer = summary(site, 0.6)
    assert answer["reply"] is None
    assert answer["refused"] == "this site's --state folder cannot be used: No space left on device"
    assert "No space left" in bits(site)


def test_the_server_books_what_it_asked_for_even_when_the_answer_comes_too_late() -> None:
    pytest.importorskip("opendp")
    post = Hand(sites(budget=1.0))
    fleet = deployed(post)
    here = fleet.begin(1)
    post.away = {102, 103}
    from covey.core.round import Task

    fleet.ask(LabelSummary(privacy=Privacy(epsilon=0.5)), dict.fromkeys(here, Task()))
    assert fleet.ledger.epsilon == {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}


# ---------------------------------------------------------------------------------------------- never forgotten


def spent_site(folder: Path) -> None:
    pytest.importorskip("opendp")
    site = a_site(folder)
    assert summary(site, 0.6)["reply"] is not None
    assert isinstance(bits(site), dict)


@pytest.mark.parametrize("content", [None, "0.0", "0.6"])
def test_an_account_that_was_deleted_or_set_back_is_noticed(tmp_path: Path, content: str | None) -> None:
    spent_site(tmp_path)
    if content is None:
        (tmp_path / "epsilon").unlink()
    else:
        (tmp_path / "epsilon").write_text(content)
    sentence = (
        r"epsilon says that .* is spent, .* beside it says 28.3259: the account was deleted or set back"
    )
    with pytest.raises(UserError, match=sentence):
        a_site(tmp_path)
    (tmp_path / "answers.json").rename(tmp_path / "elsewhere")  # the run's state knows it, too
    with pytest.raises(UserError, match=r"run-r\.safetensors beside it says 28\.3259"):
        a_site(tmp_path)


def test_the_sentence_says_how_to_go_on(tmp_path: Path) -> None:
    spent_site(tmp_path)
    (tmp_path / "epsilon").unlink()
    with pytest.raises(UserError) as mistake:
        a_site(tmp_path)
    amount = str(mistake.value).rpartition("write ")[2].partition(" ")[0]
    (tmp_path / "epsilon").write_text(amount)
    assert a_site(tmp_path).account.epsilon == pytest.approx(28.3259, abs=1e-4)


def test_a_lost_secret_is_noticed_because_new_lies_would_give_the_old_ones_away(tmp_path: Path) -> None:
    spent_site(tmp_path)
    (tmp_path / "answers.json").unlink()
    with pytest.raises(
        UserError, match=r"answers\.json is not the one that run-r\.safetensors was written with"
    ):
        a_site(tmp_path)


def test_the_secret_is_for_its_owner_only(tmp_path: Path) -> None:
    spent_site(tmp_path)
    assert (tmp_path / "answers.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_was_never_asked_anything_is_free(tmp_path: Path) -> None:
    a_site(tmp_path).answer(one_request())
    (tmp_path / "epsilon").unlink(missing_ok=True)
    assert a_site(tmp_path).account.epsilon == 0.0


@pytest.mark.parametrize("text", ["", "[]", '{"secret": "x", "questions": {}}', '{"secret": "00"}'])
def test_damaged_answers_are_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "answers.json").write_text(text)
    with pytest.raises(UserError, match=r"--state: .*answers\.json cannot be read"):
        a_site(tmp_path)


def test_a_site_answers_a_bounded_number_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.deploy.privacy_account.MOST_QUESTIONS", 2)
    account = PrivacyAccount(None, data=lambda: "data")
    first = account.answer_bytes("a", 8, 0.1)
    account.answer_bytes("b", 8, 0.1)
    with pytest.raises(Refused, match="2 different questions, which is the most"):
        account.answer_bytes("c", 8, 0.1)
    assert account.answer_bytes("a", 8, 0.1) == first
    assert account.epsilon == pytest.approx(0.2)


def test_two_accounts_of_the_same_data_are_not_two_budgets(tmp_path: Path) -> None:
    """Two sites that both began before anything was told, each with a state of its own: the second tells nothing."""
    first, second = (
        PrivacyAccount(tmp_path / name, data=lambda: "rows", budget=8.0, anchor=tmp_path / "elsewhere")
        for name in ("one", "two")
    )
    first.spend(0.5)
    for told in (
        lambda: second.spend(0.25),
        lambda: second.lose(Loss(what="updates", mechanism="local", noise=9.0)),
    ):
        with pytest.raises(Refused, match="more is told of these data than this account knows of"):
            told()
    assert second.total() == 0.0
    first.spend(0.5)


def test_an_anchor_notices_that_the_whole_state_was_deleted(tmp_path: Path) -> None:
    """Of the same data, under whatever folder; other data have an account of their own."""
    anchor, loss = tmp_path / "elsewhere", Loss(what="updates", mechanism="local", noise=4.0)

    def opened(state: str, data: str = "rows") -> PrivacyAccount:
        return PrivacyAccount(tmp_path / state, data=lambda: data, budget=8.0, anchor=anchor)

    account = opened("state")
    account.spend(0.5)
    account.lose(loss)
    assert opened("state").total() == account.total() > 0.5  # goes on
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(
        UserError, match=r"--anchor: of these data epsilon 0\.5 in answers and 1 updates"
    ) as no:
        opened("state")
    assert "\n" not in str(no.value)
    with pytest.raises(UserError, match="put the old one back"):
        opened("another")
    assert opened("state", data="other rows").total() == 0
    [kept] = [file for file in anchor.iterdir() if "0.5" in file.read_text()]
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text("{")
    with pytest.raises(UserError, match=r"--anchor: .* cannot be read"):
        opened("third")
