"""The terminal: colours are ours, and nothing that is shown can steer it, whoever wrote it."""

from __future__ import annotations

from typing import Any

import rich.console
from rich.text import Text

from covey.text import uncontrolled


class Console(rich.console.Console):
    """Rich's console, on which an escape sequence in a name of somebody else's is a character like any other."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(uncontrolled(text), **settings)
