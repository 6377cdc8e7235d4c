# `make run` starts a broker; `make test` checks everything. Both make their own virtual environment in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Of `make test`: so many processes run tests at once.
WORKERS ?= 3
# Of `make soak`: storms from these seeds, for so long, so many at once.
SEEDS ?= 1001-
MINUTES ?= 30
JOBS ?= 2
# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test lint bench bench-kafka soak docs deb clean help

help:
	@echo "make run    start one broker on 127.0.0.1:9092 (nothing else is needed)"
	@echo "make test   lint, types, import rules and the whole test suite"
	@echo "make lint   only ruff, mypy and the import rules"
	@echo "make bench  benchmarks, printed as tables and written as JSON"
	@echo "make bench-kafka  the same work on Apache Kafka 3.9 in the same run (needs Maven and Java)"
	@echo "make docs   the client library's API reference, as HTML in build/reference"
	@echo "make deb    a Debian package in build/, with everything it needs but Python itself"
	@echo "make soak   long fuzzing and crash runs, then half an hour of simulated storms, and another with applications"

$(BIN)/python:
	@echo "kreplica: making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.cfg pyproject.toml | $(BIN)/python
	@echo "kreplica: installing the broker and what it needs (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --config-settings editable_mode=compat
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "kreplica: installing what the tests need (once; Spark's jars bring a real ZooKeeper)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' --config-settings editable_mode=compat
	@touch $@

run: $(VENV)/.installed
	@exec $(BIN)/twistd -n --pidfile= kreplica standalone $(ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy

test: lint
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks $(ARGS)

bench-kafka: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks kafka $(ARGS)

soak: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -m soak --timeout 0 $(ARGS)
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS)
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS) --option applications=yes

docs: $(VENV)/.installed-test
	@$(BIN)/python docs/reference.py
	@echo "kreplica: the reference is in build/reference/index.html"

deb: $(VENV)/.installed
	@$(BIN)/python packaging/deb.py $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info data .pytest_cache .mypy_cache .ruff_cache
