# `make run` starts a broker; `make test` checks everything. Both make their own virtual environment in .venv.
# Python 3.11 or later, by either name.
PYTHON ?= $(shell command -v python3.11 >/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Versions and hashes of everything that is installed; written by `make lock` (docs/decisions/0038).
LOCKS := packaging/requirements
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check install
INSTALL_SOURCE = $(PIP) --no-deps --no-build-isolation --editable . --config-settings editable_mode=compat
UV_VERSION := 0.13.9
LOCK = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' $(ARGS)
# Of `make test`: so many processes run tests at once.
WORKERS ?= 3
# Of `make soak`: storms from these seeds, for so long, so many at once.
SEEDS ?= 1001-
MINUTES ?= 30
JOBS ?= 2
# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test system-packages lint bench bench-kafka soak fresh docs deb lock clean help

help:
	@echo "make run    start one broker on 127.0.0.1:9092 (nothing else is needed)"
	@echo "make test   lint, types, import rules and the whole test suite"
	@echo "make fresh  make run and make test in a new Debian 12, as root and as another user (needs root and debootstrap)"
	@echo "make lint   only ruff, mypy and the import rules"
	@echo "make bench  benchmarks, printed as tables and written as JSON"
	@echo "make bench-kafka  the same work on Apache Kafka 3.9 in the same run (needs Maven and Java)"
	@echo "make docs   the client library's API reference, as HTML in build/reference"
	@echo "make deb    a Debian package in build/, with everything it needs but Python itself"
	@echo "make lock   write packaging/requirements again; ARGS=--upgrade takes the newest versions"
	@echo "make soak   long fuzzing and crash runs, then half an hour of simulated storms, and another with applications"

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "kreplica: $(PYTHON) is not installed, and Python 3.11 or later is needed;" \
		"Debian: apt install python3.11-venv" >&2; exit 1; }
	@$(PYTHON) packaging/check_python.py
	@echo "kreplica: making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: setup.cfg pyproject.toml $(LOCKS)/broker.txt $(LOCKS)/build.txt | $(BIN)/python
	@echo "kreplica: installing the broker and what it needs (once)"
	@$(PIP) --require-hashes -r $(LOCKS)/build.txt -r $(LOCKS)/broker.txt
	@$(INSTALL_SOURCE)
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed $(LOCKS)/test.txt
	@echo "kreplica: installing what the tests need (once; Spark's jars bring a real ZooKeeper)"
	@$(PIP) --require-hashes -r $(LOCKS)/test.txt
	@touch $@

run: $(VENV)/.installed
	@exec $(BIN)/twistd -n --pidfile= kreplica standalone $(ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy

system-packages: | $(BIN)/python
	@$(BIN)/python tests/system_programs.py

test: system-packages lint
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks $(ARGS)

bench-kafka: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks kafka $(ARGS)

soak: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -m soak --timeout 0 $(ARGS)
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS)
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS) --option applications=yes
	@$(PYTHON) tests/fresh/fresh_machine.py

fresh:
	@$(PYTHON) tests/fresh/fresh_machine.py $(ARGS)

docs: $(VENV)/.installed-test
	@$(BIN)/python docs/reference.py
	@echo "kreplica: the reference is in build/reference/index.html"

deb: $(VENV)/.installed
	@$(BIN)/python packaging/deb.py $(ARGS)

lock:
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)
	@$(LOCK) --output-file $(LOCKS)/build.txt $(LOCKS)/build.in
	@$(LOCK) --output-file $(LOCKS)/broker.txt setup.cfg
	@$(LOCK) --constraint $(LOCKS)/build.txt --constraint $(LOCKS)/broker.txt --extra test --output-file $(LOCKS)/test.txt setup.cfg

clean:
	rm -rf $(VENV) build *.egg-info data .pytest_cache .mypy_cache .ruff_cache
