# Every task of the project by name; `make` alone lists them. Written for GNU make 3.81 and later.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.project

# Which Python makes .venv; empty: the newest that is found.
PYTHON ?=
# Added to every run of pytest, as PYTEST_ARGS="-x -k sweep".
PYTEST_ARGS ?=
# How many workers run tests side by side, each with control planes of its own; 0: none but pytest.
# Cluster tests wait most of the time, so more than there are cores. Of four or more, the last one
# runs only tests without a control plane, at a low priority.
PYTEST_WORKERS ?= 4
# Added to `make faults`, as FAULTS_ARGS="--only 'kill -9'" or FAULTS_ARGS=--short.
FAULTS_ARGS ?=
# Added to `make fuzz`, as FUZZ_ARGS="--minutes 60 --only requests".
FUZZ_ARGS ?=
# Added to `make bench`, as BENCH_ARGS="--only pipeline".
BENCH_ARGS ?=
# Where the conformance data lies; tests/conformance reads the same variable.
CONFORMANCE_DATA ?= ../shared/conformance

# Of the virtual environment that may be active in this shell, the Python below it.
define BASE_PYTHON
import ensurepip, sys, venv
print(sys._base_executable if sys.version_info >= (3, 11) else "")
endef
export BASE_PYTHON

# Another active virtual environment must not leak into this one.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH
# Every worker and every program that a test starts would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check faults fuzz bench lint types conformance conformance-units conformance-cli \
	conformance-dialects e2e e2e-kind e2e-node control-plane helm chart schemas clean

help: ## List the targets
	@echo "Usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-21s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'Options: PYTHON=python3.12, PYTEST_ARGS="-x -k sweep", PYTEST_WORKERS=2, BENCH_ARGS="--only steady"'

demo: $(READY) ## Start a real local control plane and watch a policy change an existing object
	$(BIN)/retrofit dev demo

test: $(READY) control-plane ## Run all tests but end to end, on real local control planes
	@$(BIN)/python -m devcluster.helm >/dev/null || echo "without Helm the tests of the chart are skipped" >&2
	$(BIN)/pytest --numprocesses=$(PYTEST_WORKERS) --durations=10 $(PYTEST_ARGS)

check: lint types test ## Run lint, types and test, as CI does

faults: $(READY) control-plane ## Break everything under triggers: what was lost, what came twice
	$(BIN)/python -m tests.faults.table.run $(FAULTS_ARGS)

fuzz: $(READY) ## Send reviews, policies and requests of any shape for ten minutes
	$(BIN)/python -m tests.fuzz.run $(FUZZ_ARGS)

bench: $(READY) control-plane ## Measure the engine, the desk, triggers per second, latency and API calls
	$(BIN)/python -m tests.bench.run $(BENCH_ARGS)

lint: $(READY) ## Check style, formatting and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(READY) ## Check the types
	$(BIN)/mypy --num-workers 2

conformance: $(READY) control-plane ## Run the live conformance tests, with a table per folder
	$(BIN)/pytest tests/conformance/chainsaw --conformance-report $(PYTEST_ARGS)

conformance-units: $(READY) ## Run the conformance cases of the engine, with a score per file
	$(BIN)/pytest tests/conformance/units --conformance-report $(PYTEST_ARGS)

conformance-cli: $(READY) ## Run the offline conformance tests as `retrofit test` does, with a score
	$(BIN)/pytest tests/conformance/cli --conformance-report $(PYTEST_ARGS)

conformance-dialects: $(READY) ## Run the cases of the other policy languages, with a score per file
	$(BIN)/pytest tests/conformance/dialects --conformance-report $(PYTEST_ARGS)

e2e: $(READY) control-plane ## Install, apply a policy, read the requests: on the local control plane
	$(BIN)/pytest e2e --ignore=e2e/test_kind.py --ignore=e2e/node $(PYTEST_ARGS)

e2e-kind: $(READY) ## Build the image, and use it in a kind cluster; needs Docker
	@docker info >/dev/null 2>&1 || { \
		echo "e2e-kind needs a container engine: 'docker info' does not answer here; 'make e2e' needs none" >&2; \
		exit 1; }
	$(BIN)/pytest e2e/test_kind.py $(PYTEST_ARGS)

e2e-node: $(READY) ## Use the image in a cluster with a real node; needs root on Debian, no registry
	$(BIN)/python -m e2e.node -x $(PYTEST_ARGS)

control-plane: $(READY) ## Find, download or build etcd, kube-apiserver and kubectl (once, minutes)
	$(BIN)/retrofit dev control-plane

helm: $(READY) ## Find or build Helm, for the tests of the chart (once, minutes)
	@$(BIN)/python -m devcluster.helm

chart: $(READY) ## Write the schema of the chart's values
	$(BIN)/python -m devcluster.chart

schemas: $(READY) control-plane ## Write the list merge keys of the control plane's Kubernetes version
	$(BIN)/python -m devcluster.schemas --start --output reconciler/engine/patch/keytable.py

clean: ## End the local cluster; remove .venv and every cache of this folder
	@if [ -f .retrofit/state.json ]; then \
		{ [ -x $(BIN)/retrofit ] || $(MAKE) $(READY); } && $(BIN)/retrofit dev down; \
	fi
	rm -rf $(VENV) .retrofit build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment comes in two steps, so that a change of pyproject.toml does not install everything again.
$(READY): $(VENV)/.requirements pyproject.toml
	@echo "Installing kube-retrofit itself into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.requirements: requirements/dev.txt
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		for name in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
			python=$$("$$name" -c "$$BASE_PYTHON" 2>/dev/null) && [ -n "$$python" ] || continue; \
			echo "Making $(VENV) with $$python"; \
			rm -rf $(VENV) && exec "$$python" -m venv $(VENV); \
		done; \
		echo "make: no Python 3.11 or newer with its modules venv and ensurepip among: $(or $(PYTHON),python3.13 python3.12 python3.11 python3)" >&2; \
		echo "make: install one (on Debian python3-venv as well), or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@echo "Installing the pinned requirements into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	@touch $@
