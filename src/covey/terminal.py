"""The terminal: colours are ours, and nothing that is shown can steer it, whoever wrote it."""

from __future__ import annotations

from typing import Any

import rich.console
from rich.text import Text

from covey.text import uncontrolled


class Console(rich.console.Console):
    """Rich's console, on which nothing in a text is a command: no escape sequence, no [markup], no :emoji:.

    A folder, a class or a method may have any name, and a sentence may speak of `[guard]`; what is to be bold is a
    `Text` or has a style.
    """

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(uncontrolled(text), **{**settings, "markup": False, "emoji": False})
