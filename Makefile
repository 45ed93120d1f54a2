# One verb each. Everything runs in .venv, which the first verb creates.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help attack demo test test-slow check format docs bench clean

help:  ## list the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "radial needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## a small study on digits (2 min): a table and a report
	$(BIN)/radial demo --out demo

# One thread a process, one process a core: threads of torch that wait for each other's core crawl.
test: $(STAMP) check  ## the whole fast suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not slow' -n auto --dist worksteal

test-slow: $(STAMP)  ## what takes minutes
	$(BIN)/python -m pytest -m slow

attack: $(STAMP)  ## kill, starve, halt and feed rubbish to every command; writes docs/ATTACK.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/attack/attack.py

check: $(STAMP)  ## lint, formatting, types, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)  ## the site, in site/; a broken link or a missing docstring fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# learning.py and liveness.py take an hour and half of one: by hand
BENCHMARKS := $(filter-out $(addprefix benchmarks/,measure.py tables.py learning.py liveness.py),$(wildcard benchmarks/*.py))
bench: $(STAMP)  ## every benchmark, then the tables of the pages
	failed=; for script in $(BENCHMARKS); do echo; echo "== $$script"; \
	$(BIN)/python $$script || failed="$$failed $$script"; done; \
	$(BIN)/python benchmarks/tables.py && test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

clean:  ## remove the environment and what demo wrote
	rm -rf $(VENV) demo site
