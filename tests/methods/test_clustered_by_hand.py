"""The clustered methods' formulas with numbers by hand, and who ends up with whom."""

import numpy as np
import pytest
import torch

from covey.core.round import Reply, Task, run_rounds
from covey.data import federate, load
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.cfl import SplitAndAverage
from covey.methods.cflgp import as_before, cfl_gp, folded, spectral_groups
from covey.methods.feddrift import LAST, MERGED, ORIGIN, ByDrift, cluster_distances, joined, models_of_drift
from covey.methods.fedgroup import decomposed, fedgroup
from covey.methods.fedgwc import INTERACTIONS, ByInteractions, affinity, pair, rewards, split
from covey.methods.fedrc import responsibilities
from covey.methods.fedsoft import SoftAverage
from covey.methods.fesem import NearestCentre, coordinates
from covey.methods.flis import disagreement
from covey.methods.flux import MISSING, between, between_scaled, cut_at_knee, flux, knee
from covey.methods.pacfl import TellSubspace, first_singular, pacfl, principal_angles, smallest_angles
from covey.parts.group.reports import cut_tree
from covey.parts.steps import Train
from covey.training.models import build
from tests.made_up_rounds import make_round


def test_principal_angles_by_hand() -> None:
    """A plane and a line 30 degrees above it; a line in the plane; a line upright."""
    plane = np.eye(3)[:, :2]
    lines = [np.array([[np.cos(np.pi / 6)], [0], [np.sin(np.pi / 6)]]), np.eye(3)[:, 1:2], np.eye(3)[:, 2:]]
    assert principal_angles([plane], lines)[0].tolist() == pytest.approx([30, 0, 90], abs=1e-4)


def test_angles_as_pacfl_has_them_by_hand() -> None:
    """Two planes that share the direction (1, 1, 0) / sqrt 2: as subspaces 0 degrees, by single vectors 45 or 0."""
    plane, other = np.eye(3)[:, :2], np.array([[1.0, 0], [1, 0], [0, 1]]) / np.array([np.sqrt(2), 1])
    assert principal_angles([plane], [other])[0, 0] == pytest.approx(0, abs=1e-4)
    assert smallest_angles([plane], [other])[0, 0] == pytest.approx(45)
    assert smallest_angles([plane], [-plane])[0, 0] == 0  # the sign of a singular vector is arbitrary
    rows = np.array([[0.0, 2, 0], [0, -3, 0], [0, 0, 1]])
    assert np.abs(first_singular(rows, 2)).tolist() == [[0, 0], [1, 0], [0, 1]]
    assert first_singular(rows[:1], 2)[:, 1].tolist() == [0, 0, 0]


def test_pacfl_as_published_tells_vectors_of_each_class(digits_fleet) -> None:
    """Clients of one digit each: who has the same digit is near, whatever else the pictures have in common."""
    fleet = digits_fleet(clients=6, alpha=0.01)
    (reply,) = fleet.ask(TellSubspace(vectors=2, by_class=True), {0: Task()})
    told = reply.stats["subspace"]
    assert told.shape == (64, 20)
    held = set(fleet.data.shares[0].train.labels().tolist())
    assert {label for label in range(10) if told[:, 2 * label : 2 * label + 2].any()} == held
    state = run_rounds(pacfl(Train(lr=0.1), per_round=3, published=True), fleet, rounds=1)
    assert set(state.groups) == set(range(6))


def test_a_tree_is_cut_by_number_by_height_or_by_silhouette() -> None:
    far = np.abs(np.subtract.outer([0.0, 0.1, 5.0, 5.1, 9.0, 9.1], [0.0, 0.1, 5.0, 5.1, 9.0, 9.1]))
    assert cut_tree(far).tolist() == [0, 0, 1, 1, 2, 2]
    assert cut_tree(far, clusters=2).tolist() == [0, 0, 1, 1, 1, 1]
    assert cut_tree(far, threshold=100).tolist() == [0] * 6
    assert cut_tree(np.zeros((1, 1))).tolist() == [0]


def test_fedgroup_takes_the_singular_vectors_of_the_updates() -> None:
    updates = np.random.default_rng(0).normal(size=(5, 8))
    ways = decomposed(updates @ updates.T, 3) @ updates
    right = np.linalg.svd(updates)[2][:3]
    assert np.abs((ways * right).sum(axis=1)) == pytest.approx(np.ones(3))


def test_fesem_moves_a_client_to_the_nearest_centre() -> None:
    """Centres 0 and 10. Replies 1, 7 and 12 with 1, 1 and 3 samples: groups 0, 1, 1; centres 1 and (7 + 36) / 4."""
    now = make_round((0.0,), replies={0: ([1.0], 1), 1: ([7.0], 1), 2: ([12.0], 3)})
    now.models = torch.tensor([[0.0], [10.0]])
    mixing = NearestCentre(k=2)(now)
    assert now.groups == {0: 0, 1: 1, 2: 1}
    assert (mixing.factors[0] @ np.array([0, 10, 1, 7, 12])).tolist() == pytest.approx([1, 43 / 4])
    points = np.random.default_rng(0).normal(size=(4, 9))
    same = coordinates(points @ points.T)
    assert same @ same.T == pytest.approx(points @ points.T)


def test_fedsoft_weighs_replies_by_importance_and_samples() -> None:
    """Importance (.75, .25) with 4 samples and (.5, .5) with 2: model 0 weighs 3 : 1, model 1 weighs 1 : 1."""
    now = make_round((0.0,), replies={0: ([8.0], 4), 1: ([0.0], 2)})
    now.models = torch.zeros(2, 1)
    told = {0: np.array([0.75, 0.25]), 1: np.array([0.5, 0.5])}
    now.replies = [
        Reply(id=r.id, vector=r.vector, size=r.size, stats={"importance": told[r.id]}) for r in now.replies
    ]
    assert (SoftAverage()(now).factors[0] @ np.array([1, 1, 8.0, 0.0])).tolist() == pytest.approx([6, 4])


def test_flis_counts_unequal_predictions() -> None:
    assert disagreement([np.array([1, 2, 3, 4])], [np.array([1, 2, 0, 0])]).tolist() == [[0.5]]


def test_flux_compares_who_has_no_labels_by_inputs_alone() -> None:
    """Two rows of P(x), one class; both rows of a and b differ by 3 and 0, the class by 4: sqrt(9 + 0 + 16) = 5."""
    a, b = np.array([[3.0], [0.0], [4.0]]), np.zeros((3, 1))
    assert between([a], [b])[0, 0] == 5
    without = np.array([[3.0], [0.0], [MISSING]])
    assert between([without], [b])[0, 0] == pytest.approx(np.sqrt(9 * 3 / 2))


def test_flux_as_published_scales_moments_and_marks_what_is_missing() -> None:
    """Known clients: means 0 and 4, deviations 1 and 1; class 0: 2 and 6; class 1: 3 and none, which is -1.

    Scaled by the known: means 0 and 1, class 0: 0 and 1, class 1: 1 and 0. Between the two sqrt(1 + 0 + 1 + 1); who
    has no labels and a mean of 2 is 0.5 from both.
    """
    a, b = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[4.0], [1.0], [6.0], [MISSING]])
    assert between_scaled([a, b], [a, b]) == pytest.approx(np.sqrt([[0, 3], [3, 0]]))
    without = np.array([[2.0], [1.0], [MISSING], [MISSING]])
    assert between_scaled([without], [a, b])[0].tolist() == pytest.approx([0.5, 0.5])


def test_flux_as_published_cuts_at_the_knee() -> None:
    """Rising distances 1, 1, 1.2, 5: the line from 1 to 5 is furthest above at 1.2. Pairs of 0, 1 | 5, 6.2 | 20."""
    assert knee(np.array([1.0, 5.0, 1.2, 1.0])) == 1.2
    places = np.array([0.0, 1.0, 5.0, 6.2, 20.0])
    assert cut_at_knee(np.abs(places[:, None] - places)).tolist() == [0, 0, 1, 1, 2]
    assert cut_at_knee(np.zeros((3, 3))).tolist() == [0, 0, 0]


def test_cflgp_keeps_inner_products_and_numbers() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(2, 5000))
    vectors = [base[k] + 0.1 * rng.normal(size=5000) for k in (0, 1, 0, 1)]
    features = np.stack([folded(v / np.linalg.norm(v)) for v in vectors])
    assert features[0] @ features[2] == pytest.approx(0.99, abs=0.15)
    assert spectral_groups(features, 2, 0).tolist() == [0, 1, 0, 1]
    assert as_before(np.array([0, 0, 1, 1]), np.array([1, 1, 0, -1]), 2).tolist() == [1, 1, 0, 0]


def test_feddrift_by_hand() -> None:
    """Model 0 loses 1 on group 0 and 3 on group 1; model 1 loses 1.2 and 1.5: max(3 - 1, 1.2 - 1.5, 0) = 2."""
    assert cluster_distances(np.array([[1.0, 3.0], [1.2, 1.5]])).tolist() == [[0, 2], [2, 0]]
    answers = {
        i: Reply(id=i, size=1, stats={"losses": np.array(losses)})
        for i, losses in enumerate([[0.5, 2.0], [2.0, 0.4], [2.0, 2.1]])
    }
    now = make_round((0.0,), here=range(3), answers=answers, groups={0: 0, 1: 1, 2: 0})
    now.models = torch.zeros(2, 1)
    LAST.keep(now.memory, {0: 0.6, 1: 0.5, 2: 0.3})
    assert ByDrift(delta=0.5)(now) == {0: 0, 1: 1, 2: 2}  # 2.0 > 0.3 + 0.5: it gets a new model
    now.memory[LAST.name] = {0: 0.6, 1: 0.5, 2: 1.9}
    assert ByDrift(delta=0.5)(now) == {0: 0, 1: 1, 2: 0}
    assert ByDrift(delta=5.0)(now) == {0: 0, 1: 0, 2: 0}  # neither loses 5 more on the other's data


def test_groups_of_feddrift_become_one_by_complete_linkage_and_count_by_their_clients() -> None:
    """0 is near 1 and near 2, which are far from each other: only one pair joins. Three clients of 0 and one of 1:
    (3 w_0 + w_1) / 4. The new model starts from the one that was best for most of those who drifted.
    """
    far = np.array([[0, 0.3, 0.4], [0.3, 0, 0.9], [0.4, 0.9, 0]])
    assert joined(far, 0.5) == [[0, 1], [2]]
    now = make_round((0.0,), here=range(5), groups={0: 0, 1: 0, 2: 0, 3: 1, 4: 2})
    now.models = torch.tensor([[4.0], [8.0]])
    losses = {i: np.array([1.0, 1.1]) for i in range(4)}
    now.groups = ByDrift(delta=0.5).merged(now, now.groups, losses, [0, 1])
    assert now.groups == {0: 0, 1: 0, 2: 0, 3: 0, 4: 2}
    assert MERGED.of(now.memory) == [(0, 1, 0.25)]
    ORIGIN.keep(now.memory, 1)
    assert models_of_drift(now)[:, 0].tolist() == [5.0, 8.0, 8.0]


def test_fedrc_divides_by_the_labels_share() -> None:
    """Losses log 2 and log 4, an even mixture, label shares .5 and .25: 1/2 / .5 = 1/4 / .25, half and half."""
    losses = torch.log(torch.tensor([[2.0], [4.0]]))
    share = np.array([[0.5, 0.5], [0.25, 0.75]])
    found = responsibilities(losses, np.array([0.5, 0.5]), np.array([0]), share)
    assert found[:, 0].tolist() == pytest.approx([0.5, 0.5])
    even = responsibilities(losses, np.array([0.5, 0.5]), np.array([0]), np.full((2, 2), 0.5))
    assert even[:, 0].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_fedgwc_rewards_who_stays_near_the_mean() -> None:
    """Losses 0, 2 and 1 with equal sizes: mean 1, variance 2/3: exp(-3/4), exp(-3/4), 1."""
    found = rewards(np.array([[0.0], [2.0], [1.0]]), np.ones(3))
    assert found.tolist() == pytest.approx([np.exp(-0.75), np.exp(-0.75), 1])
    # no two clients alike: equal rows would leave the eigenvectors to chance
    places = np.array([0, 0.1, 0.3, 0.6, 2, 2.15, 2.3, 2.7])
    blocks = np.exp(-np.square(places[:, None] - places))
    assert split(blocks, 4, 0).tolist() == [0] * 4 + [1] * 4
    table = affinity(np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]), 4.0)
    assert table[0, 1] == pytest.approx(1.0)  # without their own entries both saw the same of client 2


def test_fedgwc_splits_when_interactions_were_calm_until_everybody_could_have_worked() -> None:
    """Eight clients, four a round: two calm rounds in a row. Four like courses have a reward of 1/4 each, which is what
    the interactions of either half hold already: nothing moves, change 0. The third round's unlike courses move them
    (half of the way to other rewards), and its change is above 1e-5: the count begins anew.
    """
    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    pairs = {pair(i, j): 0.25 if i // 4 == j // 4 else 0.0 for i in range(8) for j in range(8)}
    memory = {INTERACTIONS.name: {"pairs": pairs, "change": {0: 0.0}, "calm": {0: 0}}}
    groups = dict.fromkeys(range(8), 0)

    def after(*rounds: tuple[tuple[int, ...], tuple[float, ...]]) -> tuple[dict[int, int], int]:
        known, found = memory, groups
        for working, losses in rounds:
            courses = {i: {"course": np.full(10, loss)} for i, loss in zip(working, losses, strict=True)}
            now = make_round(
                (0.0,),
                replies={i: ([1.0], 10) for i in working},
                groups=found,
                memory=known,
                here=range(8),
                stats=courses,
            )
            ByInteractions(most=2)(now)
            known, found = dict(now.memory), now.groups
        return found, INTERACTIONS.of(known)["calm"][0]

    alike, unlike = (1.0,) * 4, (1.0, 2.0, 3.0, 4.0)
    two = dict.fromkeys(halves[0], 0) | dict.fromkeys(halves[1], 1)
    assert after((halves[0], alike)) == (groups, 1)
    assert after((halves[0], alike), (halves[1], alike)) == (two, 0)
    assert after((halves[0], alike), (halves[1], unlike), (halves[0], alike)) == (groups, 0)


def test_a_second_split_of_cfl_names_the_right_clients() -> None:
    """The reference code takes positions inside the split group for clients: its second split moves the wrong ones.

    Group 1 holds clients 3 to 7, of which 6 and 7 pull the other way; positions 3 and 4 of it, which are clients 3
    and 4 of all, must stay.
    """
    ways = (
        {i: [1.0, 0.0] for i in range(3)}
        | {i: [2.0, 0.3 * (i - 4)] for i in (3, 4, 5)}
        | {6: [-3.0, 0.1], 7: [-3.0, -0.1]}
    )
    now = make_round((0.0, 0.0), replies={i: (way, 1) for i, way in ways.items()}, number=30)
    now.models = torch.zeros(2, 2)
    now.replies = [Reply(id=r.id, vector=r.vector, slot=0 if r.id < 3 else 1, size=1) for r in now.replies]
    SplitAndAverage(still=0.4, apart=1.6, patience=20)(now)
    assert now.groups == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2}


@pytest.mark.parametrize(
    ("maker", "settings"),
    [(pacfl, {}), (fedgroup, {"clusters": 2}), (flux, {"clusters": 2}), (cfl_gp, {"k": 2})],
)
def test_rotated_pictures_are_told_apart(maker, settings) -> None:
    """Digits upright and rotated by a quarter, six clients."""
    data = federate(load("digits"), partition="iid", clients=6, seed=1, shift="rotation", rotations=(0, 1))
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=0)
    fleet = LocalFleet(data, model, seed=1, engine=Engine(debug=True))
    state = run_rounds(maker(Train(lr=0.1, epochs=2), per_round=6, **settings), fleet, rounds=3)
    groups = [state.groups[i] for i in range(6)]
    assert len(set(groups)) == 2
    assert len(set(groups[::2])) == len(set(groups[1::2])) == 1
