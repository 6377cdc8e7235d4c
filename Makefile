# `make run` starts a broker; `make test` runs all checks. Both create a virtual environment in .venv.
# Python 3.11 or later, preferably compiled with profile-guided optimization (docs/decisions/0078).
PYTHON ?= $(eval PYTHON := $(shell sh packaging/choose_python.sh $(PYTHONS)))$(PYTHON)
# 3.13 is the fastest if optimized; without the optimization, 3.12 is slower than 3.11.
PYTHONS := python3.13 python3.11 python3.12 python3.14 python3.15 python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Versions and hashes of all dependencies, written by `make lock` (docs/decisions/0038).
LOCKS := packaging/requirements
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check install
INSTALL_SOURCE = $(PIP) --no-deps --no-build-isolation --editable . --config-settings editable_mode=compat
UV_VERSION := 0.13.9
LOCK = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' $(ARGS)
# Number of test processes.
WORKERS ?= 3
# `make check`: the package in kreplica/ and tests/.
PACKAGE ?=
CHECKED = $(wildcard kreplica/$(PACKAGE) tests/$(PACKAGE))
# `make bench-kafka`: with librdkafka; with Kafka's own programs and at steady rates; both against Kafka 4 (KRaft).
KAFKA_BENCHMARKS ?= kafka kafka_java kafka_kraft
# `make pythons`: tests that depend on the Python version.
SUPPORTED := python3.11 python3.12 python3.13
CORE ?= tests/wire tests/storage tests/runtime tests/settings tests/replication tests/server
# `make soak`: seeds, duration and number of processes of the simulation.
SEEDS ?= 1001-
MINUTES ?= 30
JOBS ?= 2
# Always write compiled modules, because the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
export NO_MKDOCS_2_WARNING := 1

# `make image`: podman or docker.
BUILDER ?= $(shell command -v podman || command -v docker || echo docker)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' kreplica/__init__.py)

.PHONY: run test pythons system-packages lint check bench bench-kafka soak fresh docs manual deb dist image lock clean help

help:
	@echo "make run    start one broker on 127.0.0.1:9092"
	@echo "make test   all static checks and all tests"
	@echo "make pythons  core tests with each of Python 3.11, 3.12 and 3.13 that is installed"
	@echo "make check PACKAGE=storage   static checks and tests of one package, in less than two minutes"
	@echo "make lint   ruff, import rules, mypy, language check and spelling"
	@echo "make fresh  make run and make test in a new Debian 12, as root and as another user (needs root and debootstrap)"
	@echo "make bench  benchmarks, printed as tables and written as JSON"
	@echo "make bench-kafka  comparison with Apache Kafka 3.9 and 4 (needs Maven and Java; KAFKA_BENCHMARKS=kafka runs one part)"
	@echo "make docs   the documentation site with the API reference, in build/site"
	@echo "make manual  manual pages and shell completion, in build/manual"
	@echo "make deb    a Debian package in build/, with all dependencies except Python"
	@echo "make dist   the wheels and the source distribution in build/dist, with a lock file"
	@echo "make image  a container image, kreplica:VERSION and kreplica:latest (needs podman or docker)"
	@echo "make lock   update packaging/requirements; ARGS=--upgrade selects the newest versions"
	@echo "make soak   calls and instructions per request, fuzzing and crash tests, simulations, tests with other Pythons, then make fresh"

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { echo "kreplica: $(PYTHON) is not installed, and Python 3.11 or later is required;" \
		"Debian: apt install python3.11-venv" >&2; exit 1; }
	@"$(PYTHON)" packaging/check_python.py
	@echo "kreplica: creating a virtual environment in $(VENV) with Python $$("$(PYTHON)" packaging/check_python.py --build)"
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: setup.cfg setup.py pyproject.toml $(wildcard native/*) $(LOCKS)/broker.txt $(LOCKS)/build.txt | $(BIN)/python
	@echo "kreplica: installing the broker and its dependencies (once)"
	@$(PIP) --require-hashes -r $(LOCKS)/build.txt -r $(LOCKS)/broker.txt
	@$(INSTALL_SOURCE)
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed $(LOCKS)/test.txt
	@echo "kreplica: installing the test dependencies (once; they include Spark and ZooKeeper)"
	@$(PIP) --require-hashes -r $(LOCKS)/test.txt
	@touch $@

run: $(VENV)/.installed
	@exec $(BIN)/kreplica start $(ARGS)

lint: $(VENV)/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy
	@$(BIN)/python tests/language/check.py
	@$(BIN)/codespell

check: $(VENV)/.installed-test
	@test -n "$(CHECKED)" || { echo "kreplica: make check PACKAGE=NAME; NAME is a directory in kreplica/ or tests/" >&2; exit 1; }
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy $(wildcard kreplica/$(PACKAGE))
	@$(BIN)/python tests/language/check.py
	@$(BIN)/codespell $(CHECKED)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(wildcard tests/$(PACKAGE)) $(ARGS)

pythons:
	@for each in $(SUPPORTED); do \
		python=$$(sh packaging/choose_python.sh $$each); \
		case "$$python" in */$$each) ;; *) python=false;; esac; \
		"$$python" packaging/check_python.py 2>/dev/null || { echo "kreplica: no usable $$each is installed"; continue; }; \
		$(MAKE) --no-print-directory VENV=build/$$each PYTHON="$$python" build/$$each/.installed-test || exit 1; \
		echo "kreplica: testing with $$each"; \
		build/$$each/bin/python -m pytest -n $(WORKERS) --dist loadfile $(CORE) $(ARGS) || exit 1; \
	done

system-packages: | $(BIN)/python
	@$(BIN)/python tests/system_programs.py

test: system-packages lint
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

bench: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks $(ARGS)

bench-kafka: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks $(KAFKA_BENCHMARKS) $(ARGS)

soak: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks calls instructions
	@$(BIN)/python -m pytest -m soak --timeout 0 $(ARGS)
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS)
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS) --option applications=yes
	@$(BIN)/kreplica simulate --seeds $(SEEDS) --minutes $(MINUTES) --jobs $(JOBS) --option security=yes
	@$(MAKE) --no-print-directory pythons
	@"$(PYTHON)" tests/fresh/fresh_machine.py

fresh:
	@"$(PYTHON)" tests/fresh/fresh_machine.py $(ARGS)

$(VENV)/.installed-docs: $(VENV)/.installed $(LOCKS)/docs.txt
	@echo "kreplica: installing MkDocs and pydoctor (once)"
	@$(PIP) --require-hashes -r $(LOCKS)/docs.txt
	@touch $@

docs: $(VENV)/.installed-docs
	@$(BIN)/mkdocs build --quiet
	@echo "kreplica: the documentation is in build/site/index.html"

manual: $(VENV)/.installed
	@$(BIN)/python packaging/manual.py $(ARGS)

deb: $(VENV)/.installed
	@$(BIN)/python packaging/deb.py $(ARGS)

dist: $(VENV)/.installed
	@$(BIN)/python packaging/dist.py $(ARGS)

image:
	@$(BUILDER) build -f Containerfile -t kreplica:$(VERSION) -t kreplica:latest --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) $(ARGS) .

lock:
	@"$(PYTHON)" -m venv build/lock
	@build/lock/bin/python -m pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)
	@$(LOCK) --output-file $(LOCKS)/build.txt $(LOCKS)/build.in
	@$(LOCK) --output-file $(LOCKS)/broker.txt setup.cfg
	@$(LOCK) --constraint $(LOCKS)/build.txt --constraint $(LOCKS)/broker.txt --extra test --output-file $(LOCKS)/test.txt setup.cfg
	@$(LOCK) --constraint $(LOCKS)/test.txt --extra docs --output-file $(LOCKS)/docs.txt setup.cfg

clean:
	rm -rf $(VENV) build *.egg-info data .pytest_cache .mypy_cache .ruff_cache
