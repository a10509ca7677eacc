"""American and British spellings are the same name: `train.optimizer` is `train.optimiser`."""

import re
from collections.abc import Collection

# British -> American, within a word; both sides of a comparison are folded, so other words only have to stay apart.
FOLDS = (
    (re.compile(r"is(?=(e|ed|er|ers|es|ing|ation|ations)(?![a-z]))"), "iz"),
    (re.compile(r"our"), "or"),
    (re.compile(r"ll(?=(ed|ing|er)(?![a-z]))"), "l"),
    (re.compile(r"tre(?![a-z])"), "ter"),
)


def folded(name: str) -> str:
    """The name in American spelling."""
    for british, american in FOLDS:
        name = british.sub(american, name)
    return name


def spelled(name: str, known: Collection[str]) -> str:
    """The known name that this one is in either spelling; a name of none of them stays as it is."""
    if name in known:
        return name
    same = [other for other in known if folded(other) == folded(name)]
    return same[0] if len(same) == 1 else name
