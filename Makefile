# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
# The usual interpreter has .venv; one that is named (make test PYTHON=python3.13) has environments of its own.
OWN := $(if $(filter file default,$(origin PYTHON)),,-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
VENV := .venv$(OWN)
BIN := $(VENV)/bin
ENGINES := .venv-engines$(OWN)
# Every file of tests that needs them, found by what it imports, and the wire's fuzz, which tries Flower's messages where it is.
LIVE := $(shell grep -rlE 'importorskip."(flwr|ray)"' tests --include='test_*.py') tests/fuzz/test_wire.py -W ignore::DeprecationWarning
# One thread a process: covey uses processes and threads of its own.
export OMP_NUM_THREADS ?= 1
# Image files, where a checkout has them beside it; elsewhere `covey datasets NAME` says what goes where.
export COVEY_DATA ?= $(abspath ../shared/data)

.PHONY: demo test unit coverage changelog browser lint bench bench-peers tables docs wheel slow engines engines-newest slow-engines hostile fuzz clean

# What a user needs, for the demo. torch first and by its exact version: any other spec may pull the GPU build.
$(VENV)/user: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fast,studies,watch]'
	touch $@

$(VENV)/ready: $(VENV)/user
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fast,private,bayes,huggingface,tasks,trees,survival,pretrained,adapters,text,studies,onnx,watch,tensorboard,mlflow,wandb,docs,dev]'
	touch $@

# Flower and Ray in an environment of their own: Flower wants an older typer and rich than covey does.
$(ENGINES)/ready: pyproject.toml constraints-engines.txt
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/pip install --quiet torch==2.13.0
	$(ENGINES)/bin/pip install --quiet --constraint constraints-engines.txt --editable '.[flower,ray,fast,dev]'
	touch $@

demo: $(VENV)/user
	$(BIN)/covey doctor --compile
	$(BIN)/covey demo
	@echo "next: . $(BIN)/activate, and covey is a command here (covey --help)"

# The gate. The quick part first, then the engines in their own environment.
test: lint unit engines

# Tests in a browser run where Chromium and Playwright are there (make browser), and are skipped elsewhere, which this says.
unit: $(VENV)/ready
	@which chromium chromium-browser 2>/dev/null | grep -q . && $(BIN)/python -c "import playwright" 2>/dev/null \
	  && echo "with Chromium: the browser tests run" || echo "no Chromium or no Playwright: the browser tests are skipped (make browser)"
	$(BIN)/python -m pytest -n 2 -m "not slow"

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Which share of the lines and branches the quick tests reach; coverage.xml for other tools.
coverage: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term:skip-covered --cov-report=xml

# How the next section of CHANGELOG.md will read.
changelog: $(VENV)/ready
	$(BIN)/towncrier build --draft --version Unreleased

# What the tests in a real browser need: Playwright and axe; Chromium is the system's own (apt install chromium).
browser: $(VENV)/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[browser]'
	@which chromium chromium-browser 2>/dev/null | grep -q . || { echo "no Chromium: apt install chromium"; exit 1; }
	$(BIN)/python -m pytest tests/browser

# Everything that takes minutes.
slow: $(VENV)/ready
	$(BIN)/python -m pytest -m slow

# Real connections on loopback, with keys and TLS, and Ray clusters on this machine. Tests of one file share their servers.
engines: $(ENGINES)/ready
	$(ENGINES)/bin/python -m pytest -n 3 --dist loadfile $(LIVE) -m "not slow"

# All methods over real sites, a dead SuperLink, `flwr run`.
slow-engines: $(ENGINES)/ready
	$(ENGINES)/bin/python -m pytest $(LIVE) -m slow

# The same with the newest Flower on the index, in an environment of its own; without its dependencies, of which one may not be there yet.
NEWEST := .venv-newest$(OWN)
engines-newest: $(ENGINES)/ready
	test -d $(NEWEST) || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/pip install --quiet torch==2.13.0
	$(NEWEST)/bin/pip install --quiet --constraint constraints-engines.txt --editable '.[flower,ray,fast,dev]'
	$(NEWEST)/bin/pip install --quiet --no-deps --upgrade flwr
	$(NEWEST)/bin/python -m pytest -n 3 --dist loadfile $(LIVE) -m "not slow"

# Hostile tries and what became of them, as a table; loopback only, each within a bound on its time.
hostile: $(ENGINES)/ready
	$(ENGINES)/bin/python -m tests.hostile

# An hour of configurations, files, command lines and messages as strangers make them (FUZZ_SECONDS=300: five minutes);
# the quick tests try a few.
FUZZ_SECONDS ?= 3600
fuzz: $(VENV)/ready
	$(BIN)/python -m tests.fuzz $(FUZZ_SECONDS) $$(date +%s)

# Whole rounds of every engine, then the papers' models one by one.
bench: $(VENV)/ready
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.lane_speed

# Other simulators on the same rounds, each in an environment of its own (.venv-peers).
bench-peers: $(VENV)/ready
	$(BIN)/python -m benchmarks.peers

# The tables in README and docs, from the stored results.
tables: $(VENV)/ready
	$(BIN)/python -m experiments.tables README.md docs/*.md docs/*/*.md
	$(BIN)/python -m experiments.scoreboard docs/pictures

# The documentation as a site, in site/; a broken link or an undocumented public name is an error.
docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What a user installs, in dist/.
wheel: $(VENV)/ready
	$(BIN)/python -m build --wheel

clean:
	rm -rf .venv .venv-* runs build dist site .mypy_cache .ruff_cache .pytest_cache
