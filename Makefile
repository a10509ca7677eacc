# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread a process: covey uses processes and threads of its own.
export OMP_NUM_THREADS ?= 1

# The five papers' methods, and the average that helps nobody.
DEMO := fedavg cafa hierarchical embedding haccs cfic

.PHONY: demo test lint bench tables slow clean

# torch first and by its exact version: any other spec may pull the GPU build.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fast,private,bayes,dev]'
	touch $@

demo: $(VENV)/ready
	$(BIN)/covey compare $(DEMO) examples/demo.toml --out runs/demo-$$(date +%Y%m%d-%H%M%S)

test: $(VENV)/ready lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Everything that takes minutes.
slow: $(VENV)/ready
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

# The tables in README and docs, from the stored results.
tables: $(VENV)/ready
	$(BIN)/python -m covey.experiments.tables README.md docs/*.md docs/*/*.md

clean:
	rm -rf $(VENV) runs build dist .mypy_cache .ruff_cache .pytest_cache
