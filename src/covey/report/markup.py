"""HTML that is safe by construction: whatever is not `Html` is escaped."""

from collections.abc import Sequence
from html import escape


class Html(str):
    """Markup that was made here and needs no escaping."""

    __slots__ = ()


VOID = frozenset({"meta", "input", "br"})


def markup(*parts: str | None) -> Html:
    """Parts side by side; text is escaped, None is nothing."""
    return Html("".join(p if isinstance(p, Html) else escape(p) for p in parts if p is not None))


def tag(name: str, /, *parts: str | None, **attributes: str | None) -> Html:
    """One element; `class_` writes `class`, `data_x` writes `data-x`, None leaves an attribute out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>" if name in VOID else f"<{name}{written}>{markup(*parts)}</{name}>")


def cells_table(rows: Sequence[Sequence[str]], caption: str, *, stacked: bool = False) -> Html:
    """Rows of texts, the first being the heads; `stacked`: on a phone a row is a card, and nothing is scrolled."""
    heads = [tag("th", head, scope="col") if head else tag("td") for head in rows[0]]
    cells = [
        [tag("td", tag("span", text), data_head=head) for head, text in zip(rows[0], row, strict=True)]
        if stacked
        else [tag("td", text) for text in row]
        for row in rows[1:]
    ]
    body = tag("tbody", *(tag("tr", *row) for row in cells))
    head, attributes = tag("thead", tag("tr", *heads)), {"class_": "wide"} if stacked else {}
    table = tag("table", tag("caption", caption), head, body, **attributes)
    return tag("div", table, class_="scroll")
