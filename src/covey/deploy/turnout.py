"""Who participated in a round over real sites, who refused and why, and whether those who did are enough."""

from __future__ import annotations

from collections.abc import Collection

from covey.core.round import Step

GO_ON = "covey serve --resume continues when that has changed"


class Turnout:
    """What became of the questions of a round."""

    def __init__(self, quorum: int = 0) -> None:
        self.quorum = quorum
        self.said: set[tuple[int, str]] = set()  # refusals that the terminal has shown
        self.there = -1  # sites at the beginning of the last round
        self.open()

    def fewer(self, there: int, least: int) -> str:
        """What is said where a round begins with fewer sites than the run is for, once for each number of them."""
        news, self.there = there != self.there, there
        if there >= least or not news:
            return ""
        return f"continues with {there} of {least} sites; [sites] quorum says how many a round needs"

    def open(self) -> None:
        """A new round begins."""
        self.asked: set[int] = set()  # to train
        self.trained: set[int] = set()
        self.names: dict[int, str] = {}  # of whoever was asked anything
        self.refused: dict[int, str] = {}  # who refused something, and why

    def note(self, client: int, name: str, refused: str) -> bool:
        """A site was asked something, which it may have refused; whether that is news."""
        self.names[client] = name
        if not refused:
            return False
        self.refused[client] = refused
        news = (client, refused) not in self.said
        self.said.add((client, refused))
        return news

    def note_training(self, asked: Collection[int], trained: Collection[int]) -> None:
        """These were asked to train, and so many did."""
        self.asked |= {i for i in asked if i >= 0}
        self.trained |= {i for i in trained if i >= 0}

    def objection(self) -> str:
        """Why nothing is made of the round; empty where it counts, or where nobody knows what the next one brings."""
        asked = self.asked or set(self.names)
        nobody = bool(asked) and not self.trained and asked <= self.refused.keys()
        if not nobody and len(self.trained) >= min(self.quorum, len(asked)):
            return ""
        sites = "1 site that was asked" if len(asked) == 1 else f"{len(asked)} sites that were asked"
        quorum = f", and sites.quorum is {self.quorum}" if self.quorum else ""
        silent = sorted(self.names.get(i, str(i)) for i in asked - self.trained - self.refused.keys())
        reasons = [*self.refusals(asked), *([f"{', '.join(silent)} did not answer"] if silent else [])]
        return f"{len(self.trained)} of {sites} trained{quorum}: {'; '.join(reasons)}; {GO_ON}"

    def refusals(self, asked: Collection[int]) -> list[str]:
        """Who refused, by reason."""
        by_reason: dict[str, list[str]] = {}
        for client, why in sorted(self.refused.items()):
            if client in asked:
                by_reason.setdefault(why.rstrip("."), []).append(self.names[client])
        return [f"{', '.join(names)} refused: {why}" for why, names in by_reason.items()]


def is_training(step: Step) -> bool:
    """Whether a site that answers has trained: also where its update comes in a secure sum."""
    kinds = (step.kind, getattr(getattr(step, "step", None), "kind", ""))
    return any(kind.startswith("train.") for kind in kinds)
