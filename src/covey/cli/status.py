"""`covey status`: who is there in a run over real sites."""

import time
from pathlib import Path

from covey.terminal import Console

COLUMNS = ("site", "no.", "state", "last seen", "doing", "in", "out", "sec", "lost")


def status(folder: Path) -> None:
    """Who is connected, whom the run waits for, and who was refused and why.

    Args:
        folder: the folder of a run that covey serve writes.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    from covey.deploy.status_page import ago, has_ended, read_status, size

    found = read_status(folder)
    now, at, console = found["now"], time.time(), Console()
    rounds = f" of {now['rounds']}" if now["rounds"] else ""
    ended = has_ended(folder, found)
    where = f"round {now['round']}{rounds}"
    if ended:
        words = f"the server has ended, in {where}; this is what it saw last, {ago(at, found['time'])}"
    else:
        waits = ", ".join(now["waits_for"]) or "nobody"
        words = f"{where}: {now['doing']} for {ago(at, now['since'], since=True)}; waits for {waits}"
    console.print(words)
    sites = Table(
        *(Column(name, no_wrap=True) for name in COLUMNS),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for site in found["sites"]:
        sites.add_row(
            *(site["name"], str(site["client"]), "not known" if ended else site["state"]),
            *(ago(at, site["last_seen"]), "" if ended else site["doing"]),
            *(size(site["bytes_in"]), size(site["bytes_out"]), f"{site['seconds']:.1f}", str(site["lost"])),
        )
    console.print_whole(sites)
    for site in found["sites"]:
        if site["why"]:
            console.print(f"{site['name']} {'was' if ended else 'is'} {site['state']}: {site['why']}")
    if found["refused"]:
        refused = Table(Column("refused key", no_wrap=True), "why", "times", Column("last", no_wrap=True))
        for one in found["refused"]:
            refused.add_row(one["key"], one["why"], str(one["count"]), ago(at, one["last_seen"]))
        console.print(refused)
