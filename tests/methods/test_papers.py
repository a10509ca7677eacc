"""Whoever opens a method's file sees whose method it is."""

from __future__ import annotations

import inspect
import re

import pytest

from covey.settings.catalogue import METHODS

PAPER = re.compile(r"et al\.|\([A-Z][^()]*, (?:19|20)\d\d\)|CAFA \(")
OURS = {"covey", "compose", "local", "centralized"}


@pytest.mark.parametrize("name", sorted(set(METHODS.builtin) - OURS))
def test_the_first_line_of_a_methods_file_names_its_paper(name: str) -> None:
    method = METHODS[name]
    first = (inspect.getdoc(inspect.getmodule(method)) or "").splitlines()[0]
    assert PAPER.search(first), first
