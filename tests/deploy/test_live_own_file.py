"""A method of the server's own file over real sites: it never reaches a site, and a changed file is said on resume."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")
from tests.deploy.live_deployment import DIGITS, Deployment

# Whoever imports it leaves its process id beside it.
MINE = """
import os
from pathlib import Path

from covey.core.round import Method
from covey.parts.mix.average import Average
from covey.parts.selection.plain import Uniform
from covey.parts.steps import Train

(Path(__file__).parent / f"imported-{os.getpid()}").touch()


def mine(train: Train, *, per_round: int = 2) -> Method:
    return Method(name="mine", select=Uniform(per_round=per_round), local=train, mix=Average(weighting="equal"))
"""
TWO_SITES = DIGITS.replace("clients = 4", "clients = 2").replace("per_round = 4", "per_round = 2")


@pytest.mark.slow
def test_a_method_of_the_servers_file_runs_is_killed_and_resumed_only_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.toml").write_text(TWO_SITES.replace('name = "fedavg"', 'name = "mine.py:mine"'))
    with Deployment(tmp_path, sites=2, tables=TWO_SITES) as here:
        sites = [here.site(number) for number in range(2)]
        server = here.serve("run", file="mine.toml")
        sites[0].wait_for("round 1: evaluate.local")
        here.hold(0)
        here.wait_until_held(0)
        server.kill()
        here.release(0)

        (tmp_path / "mine.py").write_text(MINE + "\n# another line\n")
        resume = ("serve", "--resume", "run", "--host", "127.0.0.1", "--port", str(here.port))
        refused = here.start("refused", *resume)
        assert refused.end() == 2, refused.said()
        assert "mine.py) has changed since the run began" in refused.said()
        assert "--changed-code" in refused.said()
        again = here.start("again", *resume, "--changed-code")
        assert again.end() == 0, again.said()

        imported = {int(path.name.removeprefix("imported-")) for path in tmp_path.glob("imported-*")}
        assert imported == {program.process.pid for program in (server, refused, again)}, "no site"
        assert here.state("run").round == 3
        assert torch.equal(
            here.simulate("straight", f"method.name={tmp_path}/mine.py:mine").models, here.state("run").models
        )
