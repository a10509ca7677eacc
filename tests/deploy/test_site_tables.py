"""Tables at real sites: what a method asks of rows that are no pictures, and one schema for tables that differ."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

import covey
from covey.core.codec import from_bytes, to_bytes
from covey.core.round import run_rounds
from covey.data import read_table
from covey.data.encoding import encode
from covey.data.realign import realigned
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.deploy.fleet import SiteFleet
from covey.deploy.run import site_fleet
from covey.deploy.site import Site
from covey.deploy.site_data import MOST_UNCOUNTED, SiteTable, columns_mark
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.wire import ModelSpec, step_to_plain
from covey.errors import Refused, RunError, UserError
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.embedding import embedding
from covey.parts.steps import Train
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.private import Noised
from covey.parts.steps.scale import TellScale
from covey.privacy.composition import composed
from covey.runs.config import resolve
from tests.deploy.one_request import one_request
from tests.deploy.sites_by_hand import Hand, Patient
from tests.methods.test_embedding import of_tables


def test_embeddings_of_tables_find_the_same_kinds_of_sites() -> None:
    data = of_tables()
    hand = Hand(
        {
            100 + i: Site((share.train, share.test), name=f"site-{i}", bounds=Patient())
            for i, share in enumerate(data.shares)
        }
    )
    spec = ModelSpec(name="mlp", settings={"hidden": [4]}, shape=(12,), outputs=2, objective="classification")
    fleet = SiteFleet(hand, spec, server_data=data, names=ClientNumbers({}), seed=1, deadline=0.5, least=8)
    # a site's noise has no seed: so little of it that no bit is flipped by chance
    state = run_rounds(embedding(Train(lr=0.1), per_round=8, flip=1e-9), fleet, rounds=1)
    assert adjusted_rand_score(np.arange(8) % 2, [state.groups[i] for i in range(8)]) == 1.0
    assert torch.isfinite(state.models).all()


def test_what_no_site_can_do_is_refused_when_the_file_is_read() -> None:
    tables = {"method": {"name": "ladd"}, "data": {"clients": 8}}
    with pytest.raises(UserError, match=r"method ladd cannot be used with .* 1 dimensions, not 3"):
        site_fleet(resolve(tables), Hand({}), keys={}, least=8, own=of_tables().dataset)


WARDS = ("emergency", "icu", "surgery")


def hospital(
    folder: Path, name: str, *, seed: int, wards: Sequence[str] = WARDS, swapped: bool = False
) -> Path:
    """Forty patients: age, a lab value with empty cells, a ward; ill are the old ones, or those in the icu."""
    rng = np.random.default_rng(seed)
    lines = ["lab,age,ward,ill" if swapped else "age,lab,ward,ill"]
    for _ in range(40):
        age, lab, ward = int(rng.integers(20, 90)), f"{rng.normal(5, 2):.2f}", str(rng.choice(list(wards)))
        ill = "yes" if (age > 60) != (ward == "icu") else "no"
        cells = [str(age), lab if rng.random() > 0.1 else "", ward, ill]
        lines.append(",".join([cells[1], cells[0], *cells[2:]] if swapped else cells))
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def hospitals(folder: Path, **settings: Any) -> Hand:
    """Four hospitals: one has no icu, one writes its columns in another order."""
    files = {
        "a": hospital(folder, "a", seed=1),
        "b": hospital(folder, "b", seed=2),
        "c": hospital(folder, "c", seed=3, wards=("emergency", "surgery")),
        "d": hospital(folder, "d", seed=4, swapped=True),
    }
    return Hand(
        {
            100 + i: Site(SiteTable(source=file, label="ill"), name=name, bounds=Patient(), **settings)
            for i, (name, file) in enumerate(files.items())
        }
    )


CONFIG: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 4},
    "model": {"name": "mlp", "hidden": [8]},
    "method": {"name": "fedavg", "per_round": 4},
    "train": {"lr": 0.1},
    "engine": {"lanes": False},
    "devices": {"deadline": 1.0},
    "sites": {"schema": "sites"},
    "measure": {"global_test": False},
}


def test_sites_agree_on_their_columns_though_one_lacks_a_ward_and_one_has_another_order(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    fleet = site_fleet(resolve(CONFIG), hospitals(tmp_path), keys={}, least=4, say=said.append)
    assert fleet.schema is not None
    assert fleet.schema.inputs == (
        *("age", "lab", "lab (missing)"),
        *("ward=emergency", "ward=icu", "ward=surgery"),
    )
    assert "the column 'ward' has 'icu', which does not occur at c" in said
    whole = read_whole(tmp_path)
    # fill values and scale are those of everybody's training rows, whoever holds them
    ages = np.concatenate([data.x[data.train, data.features.index("age")].numpy() for data in whole])
    assert fleet.schema.columns[0].mean == pytest.approx(ages.mean())
    assert fleet.schema.columns[0].std == pytest.approx(ages.std(), rel=1e-5)
    state = run_rounds(resolve(CONFIG).method, fleet, rounds=2)
    assert state.worked == (0, 1, 2, 3)
    inputs = {node: site.data.dataset.x for node, site in fleet.transport.sites.items()}  # type: ignore[attr-defined]
    assert (inputs[102][:, 4] == 0).all()  # nobody is in the icu there
    assert inputs[103][:, 0].min() >= 20  # ages, though they are the second column of that file


def read_whole(folder: Path) -> list[Dataset]:
    return [read_table(folder / f"{name}.csv", label="ill") for name in "abcd"]


def test_a_run_under_one_schema_has_the_bits_of_a_simulation_that_has_all_tables(tmp_path: Path) -> None:
    fleet = site_fleet(resolve(CONFIG), hospitals(tmp_path), keys={}, least=4)
    assert fleet.schema is not None
    method = resolve(CONFIG).method
    there = run_rounds(method, fleet, rounds=2)
    parts = [SiteTable(source=tmp_path / f"{name}.csv", label="ill").read(fleet.schema) for name in "abcd"]
    data = Federation(
        parts[0],
        tuple(ClientShare(Samples(p, p.train), Samples(p, p.test)) for p in parts),
        Samples(parts[0], parts[0].test),
    )
    local = LocalFleet(data, fleet.spec.build(0), seed=0, engine=Engine(mode="serial", lanes=False))
    assert torch.equal(run_rounds(method, local, rounds=2).models, there.models)


@pytest.mark.parametrize(
    ("old", "new", "label", "why"),
    [
        ("ward", "station", "ill", "the column 'ward' is only at the others"),
        ("ill\n", "sick\n", "sick", "the label at the others: 'ill'; at this site: 'sick'"),
        (",lab,", ",lab [mg],", "ill", "the column 'lab' is only at the others"),
    ],
)
def test_a_table_that_differs_is_left_out_with_the_column_named(
    tmp_path: Path, old: str, new: str, label: str, why: str
) -> None:
    hand = hospitals(tmp_path)
    file = tmp_path / "b.csv"
    file.write_text(file.read_text().replace(old, new, 1))
    hand.sites[101] = Site(SiteTable(source=file, label=label), name="b", bounds=Patient())
    said: list[str] = []
    fleet = site_fleet(resolve(CONFIG), hand, keys={}, least=3, say=said.append)
    assert len(fleet.begin(1)) == 3
    first = next(line for line in said if line.startswith("site b is left out for now"))
    assert first == f"site b is left out for now: the tables cannot be used together: {why}"


def test_a_schema_of_a_file_is_kept_to_and_names_the_value_that_it_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "agreed").mkdir()
    hospital(tmp_path / "agreed", "c", seed=3, wards=("emergency", "surgery"))
    narrow = read_table(tmp_path / "agreed" / "c.csv", label="ill").schema
    assert narrow is not None
    (tmp_path / "schema.json").write_text(json.dumps(narrow.plain()))
    tables = {**CONFIG, "sites": {"schema": str(tmp_path / "schema.json")}}
    said: list[str] = []
    # with a budget a site tells nothing of its columns, and is checked all the same
    fleet = site_fleet(resolve(tables), hospitals(tmp_path, budget=3.0), keys={}, least=1, say=said.append)
    assert fleet.begin(1) == [0]
    assert fleet.registry.sites[0].name == "c"
    (line,) = [line for line in said if line.startswith("site a is left out")]
    assert line.endswith("its table does not fit the run's columns; the site's own log says why")
    fleet = site_fleet(resolve(tables), hospitals(tmp_path), keys={}, least=1, say=said.append)
    assert fleet.begin(1) == [0]
    line = [line for line in said if line.startswith("site a is left out")][-1]
    assert "the column 'ward' holds 'icu' in row" in line


def test_with_a_budget_a_sites_own_log_names_what_does_not_fit(tmp_path: Path) -> None:
    whole = read_table(hospital(tmp_path, "c", seed=3, wards=("emergency", "surgery")), label="ill").schema
    assert whole is not None
    own: list[str] = []
    table = SiteTable(source=hospital(tmp_path, "a", seed=1), label="ill")
    site = Site(table, name="a", budget=1.0, say=own.append)
    with pytest.raises(Refused, match="the site's own log says why"):
        site.fitting(whole)
    assert "the column 'ward' holds 'icu' in row" in own[0]


def test_with_a_budget_columns_are_never_scaled_by_a_sites_own_rows(tmp_path: Path) -> None:
    table = SiteTable(source=hospital(tmp_path, "a", seed=1), label="ill")
    step = step_to_plain(Noised(step=Train(epochs=1, lr=0.1), clip=0.5, noise=10.0))
    for site, refused in (
        (Site(table, name="a", budget=3.0, bounds=Patient()), "the run says nothing of the columns"),
        (Site(table, name="a", bounds=Patient()), "the model takes samples of shape"),
    ):
        assert refused in from_bytes(site.answer(one_request(step=step)))["refused"]


def test_everybody_tells_ranges_so_that_a_model_of_sites_warns_by_them(tmp_path: Path) -> None:
    fleet = site_fleet(resolve(CONFIG), hospitals(tmp_path), keys={}, least=4)
    assert fleet.schema is not None
    ages = np.concatenate([data.x[data.train, data.features.index("age")] for data in read_whole(tmp_path)])
    age = fleet.schema.columns[0]
    assert (age.name, age.low, age.high) == ("age", ages.min(), ages.max())
    row = {"age": 22_000, "lab": 5.0, "ward": "icu"}  # days
    with pytest.warns(
        UserWarning, match=f"in training it ran from {age.low:g} to {age.high:g}: is it the same unit"
    ):
        encode(fleet.schema, [row])


NOISE = TellScale(privacy=Privacy(epsilon=4.0))


def private_hospitals(folder: Path, budget: float = 5.0) -> Hand:
    hand = hospitals(folder)
    table = SiteTable(source=folder / "a.csv", label="ill")
    hand.sites[100] = Site(table, name="a", bounds=Patient(), budget=budget, folder=folder / "state")
    return hand


def test_a_site_with_a_budget_tells_sums_with_noise_and_books_them_once(tmp_path: Path) -> None:
    hand, said = private_hospitals(tmp_path), []  # type: ignore[var-annotated]
    fleet = site_fleet(resolve(CONFIG), hand, keys={}, least=4, scaling=NOISE, say=said.append)
    assert "fill values and scale are of sums that 4 sites told with noise (epsilon 4 each)" in said
    account = hand.sites[100].account
    spent = account.composed(account.epsilon, account.told)
    assert spent == pytest.approx(4.0, rel=0.01)
    assert fleet.begin(1) == [0, 1, 2, 3]
    assert {loss.what for loss in fleet.ledger.told[0]} == {"summaries"}
    assert composed(fleet.ledger.told[0], 1e-5, "sample") == pytest.approx(4.0, rel=0.01)
    # a server that crashed and asks again, and a site that was started again, change nothing
    hand.sites[100] = Site(
        hand.sites[100].own.table, name="a", bounds=Patient(), budget=5.0, folder=tmp_path / "state"
    )
    again = site_fleet(resolve(CONFIG), hand, keys={}, least=4, scaling=NOISE)
    assert hand.sites[100].account.told == account.told
    assert again.schema is not None
    exact = site_fleet(resolve(CONFIG), hospitals(tmp_path), keys={}, least=4).schema
    assert exact is not None
    for noisy, true in zip(again.schema.columns, exact.columns, strict=True):
        assert (noisy.low, noisy.high, noisy.categories) == (true.low, true.high, true.categories)
        if noisy.mean is not None:
            assert noisy.mean == pytest.approx(true.mean, abs=(true.high - true.low) / 4)  # type: ignore[operator]


def test_a_budget_that_is_too_small_tells_no_sums_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    site_fleet(
        resolve(CONFIG),
        private_hospitals(tmp_path, budget=1.0),
        keys={},
        least=4,
        scaling=NOISE,
        say=said.append,
    )
    assert any(line.startswith("site a tells no sums: a summary is refused") for line in said)


def test_where_all_have_a_budget_the_studys_file_says_columns_and_ranges(tmp_path: Path) -> None:
    hand = hospitals(tmp_path, budget=5.0)
    plain: dict[str, Any] = {
        "label": "ill",
        "classes": ["no", "yes"],
        "columns": [
            {"name": "age", "low": 0, "high": 120},
            {"name": "lab", "indicator": True, "fill": 0},
            {"name": "ward", "kind": "category", "categories": list(WARDS)},
        ],
    }
    file = tmp_path / "columns.json"
    tables = {**CONFIG, "sites": {"schema": str(file)}}
    file.write_text(json.dumps(plain))
    with pytest.raises(UserError, match=r"needs a range of the column 'lab'.*give low and high"):
        site_fleet(resolve(tables), hand, keys={}, least=4, scaling=NOISE)
    plain["columns"][1] |= {"low": 0, "high": 10}
    file.write_text(json.dumps(plain))
    fleet = site_fleet(resolve(tables), hand, keys={}, least=4, scaling=NOISE)
    assert fleet.schema is not None
    age, lab, ward = fleet.schema.columns
    assert age.mean == pytest.approx(55, abs=20)
    assert lab.fill == pytest.approx(5, abs=2.5)
    assert ward.fill in WARDS
    assert fleet.begin(1) == [0, 1, 2, 3]
    ranged = TellScale(privacy=Privacy(epsilon=4.0), low=0.0, high=1.0)
    with pytest.raises(UserError, match="--scale-range is one range for all inputs"):
        site_fleet(resolve(tables), hand, keys={}, least=4, scaling=ranged)


def test_sites_with_a_budget_tell_no_columns_and_take_the_others(tmp_path: Path) -> None:
    hand = hospitals(tmp_path)
    hand.sites[100] = Site(
        SiteTable(source=tmp_path / "a.csv", label="ill"), name="a", bounds=Patient(), budget=3.0
    )
    fleet = site_fleet(resolve(CONFIG), hand, keys={}, least=4)
    assert fleet.begin(1) == [0, 1, 2, 3]
    with pytest.raises(RunError, match="no site tells its columns, because all have a privacy budget"):
        site_fleet(resolve(CONFIG), hospitals(tmp_path, budget=3.0), keys={}, least=4)


def test_numbers_in_another_unit_are_refused_with_the_value(tmp_path: Path) -> None:
    whole = read_table(hospital(tmp_path, "a", seed=1), label="ill")
    assert whole.schema is not None
    age, *others = whole.schema.columns
    schema = replace(whole.schema, columns=(replace(age, low=0.0, high=120.0, unit="years"), *others))
    realigned(whole, schema)
    days = replace(whole, x=whole.x * torch.tensor([365.0, *[1.0] * (whole.x.shape[1] - 1)]))
    with pytest.raises(UserError, match=r"the column 'age' holds \d+.*; everybody's are from 0 to 120 years"):
        realigned(days, schema)


def test_a_python_sites_table_is_put_in_order_by_name_and_without_names_refused(tmp_path: Path) -> None:
    hand = hospitals(tmp_path)
    hand.sites[103] = Site(read_table(tmp_path / "d.csv", label="ill"), name="d", bounds=Patient())
    bare = read_table(tmp_path / "a.csv", label="ill")
    hand.sites[100] = Site(replace(bare, features=(), schema=None), name="a", bounds=Patient())
    said: list[str] = []
    fleet = site_fleet(resolve(CONFIG), hand, keys={}, least=3, say=said.append)
    assert len(fleet.begin(1)) == 3
    assert hand.sites[103].data.dataset.x[:, 0].min() >= 20
    assert any("site a is left out for now" in line and "no column names" in line for line in said)


def greeted(site: Site, **said: Any) -> dict[str, Any]:
    return dict(from_bytes(site.answer(to_bytes({"hello": True, "covey": covey.__version__, **said}))))


def test_a_site_with_a_budget_says_no_categories_of_its_own_when_it_joins(tmp_path: Path) -> None:
    """The shape of its samples would say how many wards there are; without columns of the run it could not work."""
    for wards in (WARDS, WARDS[1:]):
        source = SiteTable(source=hospital(tmp_path, "a", seed=1, wards=wards), label="ill")
        hello = greeted(Site(source, name="a", budget=3.0, bounds=Patient()))
        assert set(hello) == {"name", "refused"}
        assert "the run says nothing of the columns" in hello["refused"]


def test_a_server_cannot_try_out_a_table_of_a_site_with_a_budget(tmp_path: Path) -> None:
    """How old the oldest is: sixteen answers of yes or no, also to several servers and after a restart."""
    whole = read_table(hospital(tmp_path, "a", seed=1), label="ill").schema
    assert whole is not None
    age, *others = whole.columns
    source = SiteTable(source=tmp_path / "a.csv", label="ill")
    said = []
    for high in range(20, 60):
        site = Site(source, name="a", budget=3.0, folder=tmp_path / "state", bounds=Patient())
        columns = (replace(age, low=0.0, high=float(high)), *others)
        said.append(greeted(site, schema=replace(whole, columns=columns).plain()).get("refused", ""))
    assert ["which is the most" in why for why in said] == [
        place >= MOST_UNCOUNTED for place in range(len(said))
    ]
    columns = (replace(age, low=0.0, high=20.0), *others)  # the same again is no other question
    assert "which is the most" not in greeted(site, schema=replace(whole, columns=columns).plain())["refused"]


def test_fill_values_do_not_tell_which_columns_have_empty_cells(tmp_path: Path) -> None:
    """Without one, or with one far outside of the range, the table fits only if no cell is empty: each is counted."""
    whole = read_table(hospital(tmp_path, "a", seed=1), label="ill").schema
    assert whole is not None
    age, *others = whole.columns
    assert age.low is not None
    assert age.high is not None

    def mark(**changes: Any) -> str:
        return columns_mark(replace(whole, columns=(replace(age, **changes), *others)), "data")

    usual = mark(fill=age.low)
    assert mark(fill=age.high, mean=1.0, std=2.0) == usual
    assert len({usual, mark(fill=None), mark(fill=1e6), mark(fill=2e6)}) == 4


def test_a_site_with_a_budget_scales_no_table_by_its_own_rows(tmp_path: Path) -> None:
    site = Site(
        read_table(hospital(tmp_path, "a", seed=1), label="ill"), name="a", budget=3.0, bounds=Patient()
    )
    assert "own rows would scale them" in greeted(site)["refused"]
