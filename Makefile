# `make demo` and `make test` do all set-up on a machine that has Python 3.11 or later and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo demo-network test test-slow test-network test-fast lint bench tables clean clean-kernels
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

# Ratios against PyKEEN, side by side; docs/benchmarks.md is written from what was measured.
bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

# Presets of papers, all variants, trained and put into docs/results.md; those that have ended are not trained again.
SEEDS ?= 0
LANES ?= 1
NAMES = $(or $(basename $(notdir $(wildcard $(PRESETS:%=examples/%.toml)))),$(error \
  PRESETS: no preset of examples/ is '$(PRESETS)'; expected some, as in make tables PRESETS='pfedeg-2024-*-r3-*'))
tables: $(STAMP)
	printf '%s\n' $(NAMES) | xargs -P $(LANES) -I{} \
	  $(BIN)/fedkge compare examples/{}.toml --seeds $(SEEDS) --resume --out runs/presets/{}
	$(BIN)/python benchmarks/papers.py $(NAMES:%=runs/presets/%)

clean-kernels:
	find src -name '*.nb[ci]' -delete

clean: clean-kernels
	rm -rf .venv build dist runs .bench
