# `make demo` and `make test` do all set-up on a machine that has Python 3.11 or later and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo demo-network test test-slow test-network test-fast lint docs bench tables clean clean-kernels
.DEFAULT_GOAL := test

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,atlas]'
	touch $@

demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/fedkge compare examples/atlas.toml --method single,collective,fede,fedep --out runs/demo

# Hub and three sites of atlas on loopback, over NVIDIA FLARE, from keys to the report.
demo-network: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/demo_network.sh runs/demo-network

test: lint test-fast

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two test processes; kernels use one thread each (tests/conftest.py) but where a test compares thread counts.
test-fast: $(STAMP)
	NUMBA_NUM_THREADS=2 OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not slow and not network' -n 2 --dist loadfile

test-slow: $(STAMP)
	$(BIN)/pytest -m slow

# Hub and sites as processes over NVIDIA FLARE: kills, slow sites, hostile answers, full disks.
test-network: $(STAMP)
	NUMBA_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -m network

# The documentation as a site, in build/site; its tools have an environment of their own.
DOCS := .venv-docs
$(DOCS)/.installed: constraints.txt Makefile
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  mkdocs-material 'mkdocstrings[python]' ruff
	touch $@

docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@echo "build/site/index.html"

# Ratios against PyKEEN, side by side; docs/benchmarks.md is written from what was measured.
bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

# Tables of papers: what is missing is run, recorded in papers/records, and written into docs/results.
SEEDS ?= 0
LANES ?= 1
SET ?=
tables: $(STAMP)
	$(BIN)/fedkge paper $(or $(NAMES),$(error NAMES: expected tables, as in make tables NAMES='fedlu-table1 fedlu-table4')) \
	  --seeds $(SEEDS) --lanes $(LANES) $(addprefix --set ,$(SET))

clean-kernels:
	find src -name '*.nb[ci]' -delete

clean: clean-kernels
	rm -rf .venv $(DOCS) build dist runs .bench
