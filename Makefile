# make demo   sets everything up and runs the main job; leaves a page to look at
# make test   sets everything up and passes the tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs site setup clean help

help:
	@echo "make demo | test | lint | bench | docs | site | clean"

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src  # pip does so for all the rest, and some machines keep no bytecode by themselves
	touch $@

$(VENV)/flower: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower,heic,serve,meet,sweep,export]'
	touch $@

setup: $(VENV)/ready

demo: setup
	$(BIN)/wayfare demo --out runs/demo

test: $(VENV)/flower
	$(BIN)/python -m pytest $(PYTEST)

lint: $(VENV)/flower
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/flower
	$(BIN)/python benchmarks/everything.py $(if $(FULL),,--quick)

docs: setup
	$(BIN)/python -m wayfare.reference docs

site: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "$(BIN)/python -m http.server --directory build/site"

clean:
	rm -rf $(VENV) runs build .pytest_cache .mypy_cache .ruff_cache
