"""Wrong labels go to the named share of clients and training samples, and to no test sample."""

import numpy as np

from covey.testing import small_federation
from experiments.studies.label_noise import with_wrong_labels


def test_a_share_of_some_clients_training_labels_is_drawn_anew_and_no_test_label():
    before = small_federation()
    after, wrong = with_wrong_labels(before, clients=0.5, share=0.4, seed=3)
    assert len(wrong) == round(0.5 * len(before.shares))
    for client, (old, new) in enumerate(zip(before.shares, after.shares, strict=True)):
        changed = (old.train.labels() != new.train.labels()).sum()
        assert np.array_equal(old.test.labels(), new.test.labels())
        assert 0 < changed <= round(0.4 * len(old.train)) if client in wrong else changed == 0
