# `make` lists the targets. All but clean and purge first bring .venv up to date (tools/setup.py, a moment when it is).

PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 1000
# The first of them; `random` chooses it. Without it, make test-all chooses one and the others begin with 1.
FIRST ?=
DURATION ?= 120

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-jobs demo-relay up down test test-fast test-all test-machines engines pipeline-demo picture check format lock release simulate simulate-jobs \
	simulate-relay bench faults faults-jobs clean purge

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z%-]+:.*## / {sub(/%/, "TIER", $$1); printf "  make %-13s %s\n", $$1, $$2}' Makefile

setup: ## Make .venv with everything that requirements.lock pins (seconds; nothing when it is up to date)
	@$(PYTHON) tools/setup.py

demo: up ## Set everything up and replay a day of flights through specialized workers
	@$(BIN)/python -m examples.airports.demo $(DEMO)

demo-jobs: setup ## Do 2,914 jobs on SQLite while workers, broker and redo are killed, and account for all, in minutes
	@$(BIN)/python -m examples.airports.jobs_demo $(DEMO)

demo-relay: setup ## Call workers that can only poll, while Redis stands still and a node is killed, in two minutes
	@$(BIN)/python -m examples.airports.relay_demo $(DEMO)

up: setup ## Bring this machine to a running pool with Ansible (your own broker: see docs/start/install.md)
	@$(BIN)/python tools/play.py dev $(PLAY)

down: setup ## Stop what `make up` started
	@$(BIN)/python tools/play.py down $(PLAY)

test: setup ## Run what every change must pass, in ten minutes; a part of it: make test ARGS='unit -- -k orphan'
	@$(BIN)/python tools/run_tests.py $(ARGS)

test-fast: setup ## Run the unit tests and a few of the others, in under two minutes
	@$(BIN)/python tools/run_tests.py --fast

test-all: setup ## Run all tests on all engines: both RabbitMQs, Docker, systemd, Kubernetes, Pulumi, Spark; an hour and a half
	@OSRDYNE_FIRST_SEED=$(FIRST) $(BIN)/python tools/run_tests.py --all

test-machines: setup ## Run the two commands of the README on bare machines, Debian 12 and 13; before every release
	@$(BIN)/python tools/machines.py $(ARGS)

test-%: setup ## Run all tests of one tier on its engines: broker, drivers, infra, roles, security, faults, jobs, pipeline, release
	@OSRDYNE_FIRST_SEED=$(FIRST) $(BIN)/python tools/run_tests.py --all $*

engines: setup ## Make what the engines of test-all consist of; the first time on a machine it compiles for half an hour
	@$(BIN)/python -m testbed.prepare test-all

pipeline-demo: setup ## The year's flights as events, tables, better delays and a report, in a few minutes
	@$(BIN)/python -m examples.airports.pipeline_demo $(DEMO)

picture: setup ## Record a run of the demo as docs/demo.svg, on a broker of its own, in a minute or two
	@$(BIN)/python tools/picture.py

check: setup ## Check format, lint, types, import order, links of the docs, Ansible and YAML
	@$(BIN)/python tools/check.py

format: setup ## Format the code and fix what ruff can fix
	@$(BIN)/python tools/check.py --fix

simulate: setup ## Run the daemon under simulated faults; SEEDS=10000 FIRST=random for others, see docs/explain/simulation.md
	@$(BIN)/python -m simulation --seeds $(SEEDS) --first $(or $(FIRST),1)

simulate-jobs: setup ## Run jobs under simulated faults; SEEDS=10000 FIRST=random for others, see docs/explain/simulation-jobs.md
	@$(BIN)/python -m simulation.jobs --seeds $(SEEDS) --first $(or $(FIRST),1)

simulate-relay: setup ## Run the relay under simulated faults; SEEDS=10000 FIRST=random for others, see docs/explain/simulation-jobs.md
	@$(BIN)/python -m simulation.relay --seeds $(SEEDS) --first $(or $(FIRST),1)

bench: setup ## Compare with bare pika and aio-pika; prints ratios
	@$(BIN)/python -m benchmarks

faults: setup ## Inject faults on real brokers under load and account for every request (DURATION=120 seconds)
	@$(BIN)/python -m faults --duration $(DURATION)

faults-jobs: setup ## Kill PostgreSQL, broker, workers and redo while jobs are done, and account for every job (DURATION=120)
	@$(BIN)/python -m faults.jobs --duration $(DURATION)

lock: setup ## Pin the newest versions that requirements.in allows
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url --generate-hashes \
		--custom-compile-command "make lock" requirements.in --output-file requirements.lock
	@git --no-pager diff --stat -- requirements.lock

site: setup ## Make the docs as a site, in dist/site; open its index.html
	@$(BIN)/python tools/site_of_docs.py

release: setup ## Make all files of a release in dist: make release VERSION=1.2.3; nothing is uploaded, see docs/releasing.md
	@$(BIN)/python tools/release.py "$(VERSION)" "$(IMAGES)" "$(BASE)"

purge: ## Show what these targets made on this machine, and with CONFIRM=yes stop and remove it
	@$(PYTHON) tools/purge.py --confirm=$(CONFIRM)

clean: ## Delete .venv and what tools left in the tree
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .ansible
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
