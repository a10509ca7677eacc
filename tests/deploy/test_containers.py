"""The container files, as far as no engine is needed: not root, read-only, pinned, with commands that exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import covey
from covey.cli import app
from covey.errors import RunError, UserError

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "containers"
MANIFESTS = sorted((PLACE / "kubernetes").glob("*.yaml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def parsed(words: list[str]) -> None:
    """Reads a command line of covey as covey would, without running it."""
    group = typer.main.get_command(app)
    context = group.make_context("covey", list(words), resilient_parsing=True)
    name, command, rest = group.resolve_command(context, list(words))
    if hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, rest, parent=context)


# ---------------------------------------------------------------------------------------------- the image


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (PLACE / "Containerfile").read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word.upper(), rest.strip()) for word, rest in lines]


def of(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def test_the_image_is_small_pinned_and_not_root() -> None:
    known = [
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "VOLUME",
        "USER",
        "EXPOSE",
        "ENTRYPOINT",
        "CMD",
        "HEALTHCHECK",
    ]
    assert {word for word, _ in instructions()} <= set(known)  # ADD could fetch from anywhere
    (base,) = of("ARG")
    assert re.fullmatch(r"BASE=\S+:\d+\.\d+\.\d+-slim-\w+", base), base
    assert all(re.fullmatch(r"\$\{BASE\}( AS \w+)?", used) for used in of("FROM"))
    (user,) = of("USER")
    assert user == "10001:10001"
    last_root = max(i for i, (word, _) in enumerate(instructions()) if word == "RUN")
    assert [word for word, _ in instructions()].index("USER") > last_root
    for run in of("RUN"):
        assert "curl" not in run
        assert run.count("pip install") == run.count("pip install --no-cache-dir")


@pytest.mark.slow
def test_the_recipe_builds_an_image_that_runs() -> None:
    """Options for machines with an index of their own: PODMAN_BUILD="--network host --volume /etc/pip.conf:..."."""
    if not (shutil.which("podman") and shutil.which("mmdebstrap")):
        pytest.skip("it needs podman and mmdebstrap")
    options = shlex.split(os.environ.get("PODMAN_BUILD", ""))
    subprocess.run(["sh", str(PLACE / "build.sh"), "covey:try", *options], check=True, timeout=3600)
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--network", "none")
    bare = ("--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp", "--rm")
    command = ["podman", "run", *limits, *bare, "covey:try", "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    assert said.strip() == covey.__version__


def test_the_image_installs_what_the_project_pins() -> None:
    install = " ".join(of("RUN"))
    (torch,) = set(re.findall(r"torch==[\d.]+", (ROOT / "Makefile").read_text()))
    assert torch in install
    assert "--constraint constraints-engines.txt" in install
    extras = re.findall(r"\.\[([\w,]+)\]", install)[0].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    for copy in of("COPY"):
        if not copy.startswith("--from"):
            assert all((ROOT / source).exists() for source in copy.split()[:-1])


def test_the_image_is_made_of_what_it_copies_and_nothing_else_of_a_checkout() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copied = {part for copy in of("COPY") if not copy.startswith("--from") for part in copy.split()[:-1]}
    assert "*" in ignore
    assert kept == copied


def test_compiled_kernels_outlive_a_container() -> None:
    """They take minutes on a busy machine, and a site has a deadline."""
    (volume,) = of("VOLUME")
    assert f"XDG_CACHE_HOME={volume}/cache" in " ".join(of("ENV"))


def test_commands_are_lists_so_that_signals_reach_covey() -> None:
    assert of("ENTRYPOINT") == ['["covey"]']
    (check,) = of("HEALTHCHECK")
    words = yaml.safe_load(check.partition("CMD ")[2])
    assert words[0] == "covey"
    parsed(words[1:])


# ---------------------------------------------------------------------------------------------- compose


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PLACE / "compose.yaml").read_text())
    return found


@pytest.mark.parametrize("name", list(compose()["services"]))
def test_every_service_is_locked_down_and_its_command_exists(name: str) -> None:
    service = compose()["services"][name]
    assert service["read_only"] is True
    assert service["user"] == "10001:10001"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["image"] == f"covey:{covey.__version__}"
    parsed(service["command"])
    for volume in service["volumes"]:
        source, target, *_ = volume.split(":")
        known = source in compose()["volumes"] or (PLACE / source).is_dir()
        assert known, volume
        assert target.startswith("/")


def test_one_server_and_three_sites_with_keys_of_their_own() -> None:
    services = compose()["services"]
    sites = [service for service in services.values() if service["command"][0] == "join"]
    keys = [site["command"][site["command"].index("--key") + 1] for site in sites]
    assert keys == [f"/certs/sites/site-{i}.key" for i in range(3)]
    assert len({volume for site in sites for volume in site["volumes"] if volume.endswith(":/data")}) == 3
    assert [port for service in services.values() for port in service.get("ports", [])] == ["9440:9440"]


def test_the_run_that_is_tried_fits_its_sites() -> None:
    from covey.cli.serve import loaded
    from covey.runs.config import resolve
    from covey.settings.toml import read_tables

    config = resolve(read_tables(PLACE / "try" / "run.toml"))
    assert config["data"]["clients"] == 3
    sizes = [len(loaded(f"{PLACE / 'try' / 'site.py'}:load", f"site-{i}")[0]) for i in range(3)]
    assert min(sizes) > 10


# ---------------------------------------------------------------------------------------------- Kubernetes


def documents() -> list[Any]:
    return [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text())]


PODS = [one for one in documents() if one["kind"] in ("StatefulSet", "Job")]


@pytest.mark.parametrize("one", PODS, ids=lambda one: one["metadata"]["name"])
def test_every_pod_is_locked_down_and_complete(one: dict[str, Any]) -> None:
    spec = one["spec"]["template"]["spec"]
    if one["kind"] == "StatefulSet":
        assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"] == f"covey:{covey.__version__}"
    parsed(container["args"])
    for kind in ("startupProbe", "livenessProbe"):
        probe = container[kind]["exec"]["command"]
        assert probe[0] == "covey"
        parsed(probe[1:])
    volumes = {volume["name"] for volume in spec["volumes"]}
    claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    assert "memory" in container["resources"]["limits"]


def test_a_run_ends_and_a_server_that_is_started_again_goes_on_with_it() -> None:
    (job,) = [one for one in PODS if one["kind"] == "Job"]
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "OnFailure"
    (claim,) = [one for one in documents() if one["kind"] == "PersistentVolumeClaim"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod[
        "volumes"
    ]
    for command in (pod["containers"][0]["args"], compose()["services"]["server"]["command"]):
        assert "--or-resume" in command


def test_the_service_opens_the_one_port_of_the_server() -> None:
    (service,) = [one for one in documents() if one["kind"] == "Service"]
    server = next(one for one in PODS if one["metadata"]["name"] == "covey-server")
    assert service["spec"]["selector"] == server["spec"]["template"]["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert port["targetPort"] in {p["name"] for p in container["ports"]}
    assert port["port"] == 9440


# ---------------------------------------------------------------------------------------------- health


def test_health_is_a_sign_of_life_of_a_site_or_a_server(tmp_path: Path) -> None:
    def health() -> Any:
        return CliRunner().invoke(app, ["health", str(tmp_path)])

    assert isinstance(health().exception, RunError)
    (tmp_path / "alive").touch()
    assert health().exit_code == 0
    os.utime(tmp_path / "alive", (time.time() - 1000,) * 2)
    assert "sign of life" in str(health().exception)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "status.json").touch()
    assert health().exit_code == 0
    missing = CliRunner().invoke(app, ["health", str(tmp_path / "nowhere")])
    assert isinstance(missing.exception, UserError)


def test_the_entry_point_runs_in_a_bare_environment(tmp_path: Path) -> None:
    (tmp_path / "alive").touch()
    bare = {"HOME": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "covey", "health", str(tmp_path)], env=bare, capture_output=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, b"")
