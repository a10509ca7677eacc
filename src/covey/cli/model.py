"""`covey model`: a site's own model, from its own folder."""

from pathlib import Path

from covey.errors import UserError
from covey.terminal import say


def model(state: Path, *, out: Path | None = None) -> None:
    """Show a site's own model: what it is and how good it was here; with --out, write it for covey predict.

    Args:
        state: a site's --state folder.
        out: the file to write. [default: only say where it is]
    """
    from covey.deploy.site_memory import model_at
    from covey.files import for_their_owner
    from covey.folder.served_model import write_model

    path, found = model_at(state)
    if out is not None:
        if out.exists():
            raise UserError(f"--out {out} exists already")
        with for_their_owner():
            write_model(out, found)
        path = out
    measured = ", ".join(f"{name} {value:.4f}" for name, value in found.facts.measured.items())
    say(found.facts.given + (f"; {measured}" if measured else ""))
    say(f"the model: {path}")
