"""Every question that covey can ask, put to a site with a budget: each statistic is noised and counted, or withheld."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from covey.core.codec import from_bytes
from covey.core.round import Step
from covey.data.types import Samples
from covey.deploy.site import UNSAID, Site
from covey.deploy.wire import step_to_plain
from covey.errors import UserError
from covey.parts.steps import Train
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.private import Noised
from covey.parts.steps.scale import TellScale
from covey.parts.steps.served import Serving
from covey.privacy.sketch import SketchClasses
from covey.settings.catalogue import STEPS
from tests.deploy.one_request import SPEC, one_request
from tests.deploy.sites_by_hand import Patient, shares
from tests.deploy.test_privacy_account import encoder

pytest.importorskip("opendp")
pytest.importorskip("dp_accounting")
TRAIN = Train(epochs=1, lr=0.1, batch=64)

# What a step must be told where it has no default.
GIVEN: dict[str, Any] = {
    **dict.fromkeys(("train", "step", "local"), TRAIN),
    **{"holdout": 0.3, "models": 1, "clients": (), "attack": "flip", "threshold": 3, "measure": "kl"},
    **{
        "clip": 0.5,
        "noise": 10.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "rounds": 1,
        "how": "8-bit",
        "serving": Serving(),
    },
}
# With these a step adds noise; all others have none, or have it always.
PROTECTED: dict[str, dict[str, Any]] = {
    "ClassMeans": {"privacy": Privacy(epsilon=1.0)},
    "DescribeClasses": {"privacy": Privacy(epsilon=1.0)},
    "SketchClasses": {},
    "LabelSummary": {"privacy": Privacy(epsilon=1.0)},
    "FeatureSummary": {"privacy": Privacy(epsilon=1.0)},
    "JointSummary": {"privacy": Privacy(epsilon=1.0)},
    "TargetSummary": {"privacy": Privacy(epsilon=1.0)},
    "TellLabel": {"epsilon": 1.0},
    "Embed": {"autoencoder": "ae-fc", "flip": (0.1,)},
    "NoisyEvaluate": {},
    "Noised": {},
    "ExampleTrain": {},
}
# Of these, what each statistic is; `epsilon` is what the site has spent, which its account decides and no data.
NOISED = {
    "ClassMeans": {"table": "Laplace noise on counts, sums and squares"},
    "DescribeClasses": {
        "counts": "Laplace noise",
        "bits": "randomised response",
        "views": "shape of the bits, the same for all data of a shape",
    },
    "SketchClasses": {"sums": "Gaussian noise", "counts": "Gaussian noise"},
    "LabelSummary": {"shares": "Laplace noise"},
    "FeatureSummary": {"shares": "Laplace noise", "has": "read off the noisy table"},
    "JointSummary": {"shares": "Laplace noise"},
    "TargetSummary": {"shares": "Laplace noise"},
    "TellLabel": {"label": "randomised response"},
    "Embed": {"bits": "randomised response"},
    "NoisyEvaluate": {"accuracy": "Laplace noise on both counts"},
    "Noised": {},  # the row: Gaussian noise on the clipped update
    "ExampleTrain": {},  # the row: Gaussian noise on clipped gradients
}
# The protocol of secure sums: keys and shares say nothing about data; a masked update needs both (test_live_secure).
PROTOCOL = ("SecureKeys", "SecureShares", "SecureOpen", "SecureUnmask", "SecureUpdate")
# What a site does for itself: the answer is empty, whatever its data are.
SILENT = ("TakeHome",)


def made(name: str, **settings: Any) -> Step:
    maker = STEPS[name]
    needed = {f.name for f in dataclasses.fields(maker) if is_needed(f)}
    step: Step = maker(**{**{key: GIVEN[key] for key in needed}, **settings})
    return step


def is_needed(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def a_site(without: int = 0) -> Site:
    """A site with a budget, of which nothing may leave that is not counted; `without` so many of its samples."""
    share = shares()[0]
    kept = share.train.select(slice(without, None)) if without else share.train
    assert isinstance(kept, Samples)
    return Site((kept, share.test), name="site", budget=1e6, bounds=Patient())


def asked(site: Site, step: Step) -> dict[str, Any]:
    with_row = {"task": {"models": encoder()[None], "slots": (0,), "args": {}}}
    changes = with_row if step.kind == "query.embedding" else {}
    return dict(from_bytes(site.answer(one_request(step=step_to_plain(step), **changes))))


@pytest.mark.parametrize("name", [name for name in STEPS if name not in (*PROTECTED, *PROTOCOL, *SILENT)])
def test_what_has_no_noise_is_refused_and_the_refusal_tells_nothing(name: str) -> None:
    """Word for word the same without a sample; nothing is booked, nothing else is sent."""
    site = a_site()
    answer = asked(site, made(name))
    assert "has a budget" in answer["refused"]
    assert set(answer) == {"refused"}
    assert answer == asked(a_site(without=1), made(name))
    assert site.account.epsilon == 0.0
    assert not site.account.told


@pytest.mark.parametrize("name", SILENT)
def test_what_a_site_does_for_itself_tells_nothing(name: str) -> None:
    """Also where it trains, and takes one of two rows by its loss: the answer is the same without half of the data."""
    step = made(name, serving=Serving(adapt=TRAIN))
    two = {"task": {"models": torch.randn(2, 4810), "slots": (0, 1), "args": {}}}
    request = one_request(step=step_to_plain(step), **two)
    sites = [a_site(), a_site(without=50)]
    told = [from_bytes(site.answer(request)) for site in sites]
    assert told[0] == told[1]
    assert told[0]["reply"] == {"id": 0, "vector": None, "slot": 0, "size": 0, "stats": {}}
    assert all(site.account.epsilon == 0.0 and not site.account.told for site in sites)


@pytest.mark.parametrize("name", PROTECTED)
def test_what_has_noise_is_counted_before_it_is_told(name: str) -> None:
    site = a_site()
    answer = asked(site, made(name, **PROTECTED[name]))
    reply = answer["reply"]
    assert reply is not None, answer
    assert set(reply["stats"]) - {"epsilon"} == set(NOISED[name])
    assert reply["size"] in (0, 1)
    assert answer["seconds"] == 0.0
    assert site.account.epsilon > 0 or site.account.told
    if "epsilon" in reply["stats"]:
        assert reply["stats"]["epsilon"] == pytest.approx(site.account.epsilon)


@pytest.mark.parametrize(
    "name",
    [n for n in PROTECTED if n not in ("NoisyEvaluate", "Noised", "ExampleTrain", "Embed", "SketchClasses")],
)
def test_without_its_noise_it_is_refused(name: str) -> None:
    assert "no privacy loss that can be counted" in asked(a_site(), made(name))["refused"]


def test_training_that_fails_is_told_as_noise_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may fail at one sample alone, as a server can arrange: the site's log says why, and the loss is booked."""
    said: list[str] = []
    site = a_site()
    site.say = said.append

    def fails(*_: Any) -> Any:
        raise RuntimeError("sample 17 is odd")

    monkeypatch.setattr(Train, "__call__", fails)
    answer = asked(site, made("Noised"))
    assert not any(answer[name] for name in ("lost", "refused", "mistake"))
    update = answer["reply"]["vector"]
    assert float(update.std()) == pytest.approx(GIVEN["clip"] * GIVEN["noise"], rel=0.05)
    assert sum(site.account.told.values()) == 1
    assert "sample 17 is odd" in said[0]


def test_labels_cannot_be_read_off_a_model_that_has_no_outputs_for_them() -> None:
    """Where a site has such a label training would fail, where it has none it would not."""
    for without in (0, 50):
        answer = from_bytes(
            a_site(without).answer(
                one_request(step=step_to_plain(made("Noised")), model={**SPEC.plain(), "outputs": 3})
            )
        )
        assert answer == {"refused": "the model has 3 outputs, this site's data have 10 classes"}


def test_how_many_samples_there_are_cannot_be_read_off_the_work_that_is_too_much() -> None:
    """40 batches of 32 are 1.28 passes over a thousand samples, whoever has how many; a site has about 300."""
    for batches, refused in ((40, True), (30, False)):
        step = Noised(step=Train(epochs=1000, batches=batches, batch=32), clip=0.5, noise=10.0)
        for without in (0, 100):
            site = a_site(without)
            site.bounds = Patient(passes=1.0)
            answer = asked(site, step)
            assert ("1.28 times" in answer.get("refused", "")) == refused


@pytest.mark.parametrize("name", ["Noised", "ExampleTrain", "SecureUpdate"])
@pytest.mark.parametrize("clip", [3e38, 1e-300])
def test_a_clip_length_at_which_float32_ends_or_rounds_is_refused(name: str, clip: float) -> None:
    """One gradient of 1e38 more, and their sum is endless; whether it is no noise hides."""
    plain = step_to_plain(made(name))
    plain["settings"]["clip"] = clip
    answer = from_bytes(a_site().answer(one_request(step=plain)))
    assert f"clip is {clip:g}" in answer["refused"]
    assert "reply" not in answer


def test_which_half_a_sample_is_in_is_no_function_of_the_runs_seed() -> None:
    """The server knows that: without its first sample a client would have half of all in the other half."""
    step, sums = made("ClassMeans", privacy=Privacy(epsilon=1000.0)), []
    for _ in range(2):
        table = np.asarray(asked(a_site(), step)["reply"]["stats"]["table"])[:, :, 0].round()
        sums.append(table)
    assert (sums[0].sum(axis=0) == sums[1].sum(axis=0)).all()
    assert (sums[0] != sums[1]).any()


def test_that_there_is_no_test_sample_is_told_under_noise_as_that_there_is_one() -> None:
    share = shares()[0]
    for count in (0, 1):
        rest = share.test.select(slice(0, count))
        assert isinstance(share.train, Samples)
        assert isinstance(rest, Samples)
        site = Site((share.train, rest), name="site", budget=1e6, bounds=Patient())
        assert set(asked(site, made("NoisyEvaluate"))["reply"]["stats"]) == {"accuracy", "epsilon"}
        assert site.account.epsilon == 1.0


def test_a_scale_that_makes_a_pixel_no_number_does_not_tell_that_it_is_there() -> None:
    """0 / 0 where a pixel is the mean and the deviation too small for float32: the sum would fail."""
    step = TellScale(privacy=Privacy(epsilon=1.0))
    scale = {"scale": [[0.0], [1e-60]]}
    answer = from_bytes(
        a_site().answer(one_request(step=step_to_plain(step), model={**SPEC.plain(), **scale}))
    )
    assert answer["reply"]["stats"]["epsilon"] == 1.0


@pytest.mark.parametrize("name", ["TellLabel", "LabelSummary", "SketchClasses"])
def test_what_a_reply_weighs_is_the_same_for_all_data(name: str) -> None:
    sizes = {asked(a_site(without), made(name, **PROTECTED[name]))["reply"]["size"] for without in (0, 100)}
    assert sizes == {1}


def test_a_step_that_does_not_fit_the_data_quotes_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence for users may say how many samples there are; so may an error of the request itself."""
    site, why = a_site(), "17 samples, of which none has label 3"

    def wrong(*_: Any, error: type[Exception]) -> Any:
        raise error(why)

    step = step_to_plain(made("SketchClasses"))
    monkeypatch.setattr(SketchClasses, "__call__", partial(wrong, error=UserError))
    assert from_bytes(site.answer(one_request(step=step)))["mistake"] == UNSAID
    monkeypatch.setattr("covey.deploy.site.do", partial(wrong, error=RuntimeError))
    assert from_bytes(site.answer(one_request(step=step)))["refused"] == UNSAID
