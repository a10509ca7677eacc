"""`published = true` stands for the same settings in all papers' methods, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from covey.errors import UserError
from covey.methods.published import PUBLISHED, published
from covey.runs.config import Config, resolve
from covey.settings.catalogue import METHODS


def configured(name: str, **settings: Any) -> Config:
    return resolve({"data": {"name": "digits", "clients": 8}, "method": {"name": name, **settings}})


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_the_settings_written_out(name: str) -> None:
    assert name in METHODS
    assert configured(name, published=True).toml() == configured(name, **published(name)).toml()
    assert configured(name, published=False).toml() == configured(name).toml()


def test_what_is_said_beside_it_stays() -> None:
    assert configured("cfic", published=True, beta=0.6)["method"]["beta"] == 0.6
    assert configured("haccs", published=True, draws="weighted")["method"]["draws"] == "weighted"
    assert configured("haccs", published=True)["method"]["schedule"] == "published"


def test_a_table_of_the_method_may_say_it() -> None:
    tables = {"data": {"name": "digits", "clients": 8}, "methods": {"cafa": {"published": True}}}
    assert resolve({**tables, "method": {"name": "cafa"}})["method"]["evaluation"] == "published"


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"method\.published is .yes.; allowed: true, false"):
        configured("haccs", published="yes")
    with pytest.raises(UserError, match=r"method\.published is not known.*Allowed: "):
        configured("fedavg", published=True)
    with pytest.raises(UserError, match="published is not known of fedavg"):
        published("fedavg")


def test_methods_with_a_setting_of_that_name_keep_it() -> None:
    assert configured("pacfl", published=True)["method"]["published"] is True
