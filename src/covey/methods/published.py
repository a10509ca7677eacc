"""The papers' methods as published, by one setting for all: `published = true` stands for the settings below.

It undoes what the defaults here improve; where a paper leaves a choice, it takes that of the paper's tables. Settings
that are given beside it take precedence. Topologies' three methods are the paper's by default.
"""

from collections.abc import Mapping
from typing import Any

from covey.errors import UserError
from covey.settings.toml import shown

PUBLISHED: dict[str, dict[str, Any]] = {
    "cafa": {"evaluation": "published"},
    "abfa": {"evaluation": "published"},
    "cbcc": {},
    "cbcc-select": {},
    "decentralized": {},
    "hierarchical": {},
    "semi-decentralized": {},
    "embedding": {"search": "published", "denoise": False},
    "haccs": {"schedule": "published", "draws": "quasi", "losses": "published"},
    "cfic": {"scale": "absolute", "beta": 0.3, "absent": "forgotten"},
}


def published(name: str) -> dict[str, Any]:
    """The settings that make a method the published one: `haccs(train, **published("haccs"))`."""
    if name not in PUBLISHED:
        raise UserError(f"published is not known of {name}; allowed for {', '.join(PUBLISHED)}")
    return dict(PUBLISHED[name])


def as_published(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A method's table in which `published = true` is written out; what it says beside that stays.

    Other methods have no such setting, or one of their own (flux, pacfl), and are left as they are.
    """
    if "published" not in table or name not in PUBLISHED:
        return dict(table)
    if not isinstance(table["published"], bool):
        raise UserError(f"method.published is {shown(table['published'])}; allowed: true, false")
    said = {key: value for key, value in table.items() if key != "published"}
    return {**PUBLISHED[name], **said} if table["published"] else said
