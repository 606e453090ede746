# Entry points for developers. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
.DELETE_ON_ERROR:

# The Python to create .venv with (detected if empty), and additional arguments for pytest or the benchmarks.
PYTHON ?=
ARGS ?=
# How many files of tests run at a time.
WORKERS ?= 2
# GATE=1, as in .ci/run: run only the tests marked `gate` of the heavier suites; failed tests are rerun in isolation.
GATE ?=
# For make flake: the test, the number of runs, and the number of busy processes beside it.
NAME ?=
TIMES ?= 20
LOAD ?= 2
# For make test-all: parts to run (all by default).
PARTS ?=
# For make paper: figures (all by default), the scale, and PAPER=tornado, pastri, dkm or ps2stream for those of another paper.
FIG ?=
SCALE ?=
PAPER ?=
export PYTHON

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.project $(VENV)/java_home $(VENV)/.kernels
CLUSTER := $(READY) $(VENV)/.jars
# saves little for a single start of Spark, but much for the tests
QUICK := $(VENV)/.classes
CONSOLE := jobs/src/spatialstream/gateway/console/vendor/console.lock

# Commands that may start Spark use the Java that was found when .venv was set up.
SPARK = JAVA_HOME="$$(cat $(VENV)/java_home)"

# Runs a test suite; append its name and pytest's arguments.
SUITE = $(BIN)/python -m tests.gate.suite $(if $(GATE),--rerun)
PART = $(if $(GATE),--gate)
# Several files of tests at a time, in the order of their names: what is long is not kept for the end, when one core has no more to do.
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# An environment whose Python or Java is gone, or that was created in another directory, is set up again.
$(shell scripts/venv.sh check)

##@ Use

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## run queries of all types over a feed of real earthquakes; writes demo-output/
	@$(SPARK) $(BIN)/spatialstream demo $(ARGS)

.PHONY: demo-live
demo-live: $(CLUSTER) $(CONSOLE) ## start a live stream with generated events, and its console (ARGS='--speed 60 --open')
	@$(SPARK) $(BIN)/spatialstream demo-live $(ARGS)

.PHONY: cluster-up
cluster-up: $(CLUSTER) $(CONSOLE) ## start a live stream here: ZooKeeper, Kafka, router, worker, a gateway with its console (ARGS='--stream NAME')
	@$(SPARK) $(BIN)/spatialstream cluster up $(ARGS)

.PHONY: cluster-down
cluster-down: $(READY) ## stop what cluster-up has started; a new start continues the stream
	@$(BIN)/spatialstream cluster down $(ARGS)

##@ Develop

.PHONY: test
test: $(READY) $(QUICK) ## run the tests, two at a time (ARGS='-k name' for some of them)
	@$(SPARK) $(SUITE) tests $(PARALLEL) --durations=25 --ignore=tests/benchmarks --ignore=tests/cluster --ignore=tests/browser --ignore=tests/api \
	  --ignore=tests/charts --ignore=tests/e2e $(ARGS)

.PHONY: test-cluster
test-cluster: $(CLUSTER) $(QUICK) ## run the tests with a real broker, ZooKeeper and both jobs, two at a time (ARGS as above)
	@$(SPARK) $(SUITE) cluster $(PART) $(PARALLEL) --durations=25 tests/cluster $(ARGS)

.PHONY: test-browser
test-browser: $(CLUSTER) $(CONSOLE) $(QUICK) ## run the tests of the console in a browser, on a live stream; keeps pictures in browser-output/
	@$(SPARK) CHROMIUM="$$(scripts/chromium.sh)" $(SUITE) browser $(PART) tests/browser $(ARGS)

.PHONY: test-api
test-api: $(READY) ## run the operator's tests with a real API server (etcd and kube-apiserver on the PATH)
	@$(SPARK) $(SUITE) api $(PART) $(PARALLEL) tests/api $(ARGS)

.PHONY: images
images: ## build the images of operator, streams and development services (with IMAGE_COMMAND; see scripts/images.sh)
	@scripts/images.sh $(ARGS)

.PHONY: test-charts
test-charts: $(READY) ## run the tests of the charts (helm, kubectl and promtool are found, or installed)
	@scripts/tools.sh >/dev/null
	@$(SUITE) charts $(PART) tests/charts $(ARGS)

.PHONY: e2e
e2e: images e2e-only ## run the platform's tests on the cluster of KUBECONFIG, with images built by IMAGE_COMMAND

.PHONY: e2e-only
e2e-only: $(READY) ## the same, with existing images
	@$(SPARK) $(SUITE) e2e $(PART) tests/e2e $(ARGS)

.PHONY: flake
flake: $(CLUSTER) $(QUICK) ## run one test many times under load, to reproduce a flaky failure (NAME=test_x TIMES=50 LOAD=2)
	@$(SPARK) $(BIN)/python -m tests.gate.flake '$(NAME)' --times $(TIMES) --load $(LOAD)

.PHONY: lint
lint: $(READY) ## check style, format, types and layers
	@failed=; \
	for check in 'ruff check' 'ruff format --check' 'mypy' 'lint-imports'; do \
	  echo "$$check"; \
	  $(BIN)/$$check || failed="$$failed [$$check]"; \
	done; \
	if [ -n "$$failed" ]; then echo "lint failed:$$failed"; exit 1; fi

.PHONY: format
format: $(READY) ## format the code and fix what can be fixed automatically
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

.PHONY: bench
bench: $(CLUSTER) $(CONSOLE) ## measure performance, compared with the targets
	@$(SPARK) $(BIN)/python -m tests.benchmarks $(ARGS)

.PHONY: bench-compare
bench-compare: $(READY) ## compare benchmarks with an earlier commit, in turn on this machine (COMMIT=v0.1 ARGS='crq segment')
	@$(SPARK) $(BIN)/python -m tests.benchmarks.compare '$(COMMIT)' $(ARGS)

.PHONY: bench-peers
bench-peers: $(READY) ## compare ranked queries with Lucene, and with PostGIS if it is installed: the same answers, and how fast
	@scripts/peers.sh >/dev/null
	@$(SPARK) $(BIN)/python -m tests.benchmarks.bench_peers $(ARGS)

.PHONY: paper
paper: $(READY) ## repeat the paper's experiments, with a verdict on each figure (FIG=7 to 15, 7.7, cost, leaves, text, rivals; PAPER=tornado: 8, 9, 10, 13; PAPER=pastri: 11 to 15, 18 to 21; PAPER=dkm: 2, 8 to 10, settle; PAPER=ps2stream: 6, 7, 11 to 14, 16; SCALE=0.1 to try)
	@$(SPARK) $(BIN)/python -m tests.benchmarks.paper$(addprefix .,$(PAPER)) $(FIG) $(if $(SCALE),--scale $(SCALE)) $(ARGS)

.PHONY: docs
docs: $(READY) ## build the documentation into docs/_build
	@$(SPARK) $(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

.PHONY: test-all
test-all: $(CLUSTER) $(CONSOLE) $(QUICK) ## run everything in full length, in parts of at most 30 minutes (PARTS='cluster bench' for some; requires what test-api and e2e do)
	@$(SPARK) $(BIN)/python -m tests.gate.complete $(PARTS)

##@ Set up

.PHONY: venv
venv: $(READY) ## create .venv with the locked packages, the project and a Java (the other targets do this when needed)

$(VENV)/.packages: requirements/build.lock requirements/dev.lock
	@scripts/venv.sh packages

$(VENV)/.project: pyproject.toml $(VENV)/.packages
	@scripts/venv.sh project

$(VENV)/java_home: | $(VENV)/.packages
	@scripts/jdk.sh > $@

# The jars of a Kafka broker; the stamp file contains their directory.
$(VENV)/.jars: requirements/jars.pom.xml scripts/jars.sh | $(VENV)/java_home
	@scripts/jars.sh > $@

.PHONY: console
console: $(CONSOLE) ## fetch the third-party files of the gateway's console (with npm)

$(CONSOLE): requirements/console.lock scripts/console.sh
	@scripts/console.sh
	@touch $@

# The compiled kernels are in the user's cache, shared by all clones and environments; the stamp file only saves a check.
$(VENV)/.kernels: $(shell find $(addprefix jobs/src/spatialstream/,model records index local) -name '*.py') | $(VENV)/.project
	@echo "==> compiling the kernels, unless this user's cache has them: some minutes of CPU time, on two or more cores" >&2
	@$(BIN)/python -m spatialstream.kernels >&2
	@touch $@

# A class data archive of Spark's Java classes, in the same place: it saves a quarter of the CPU time of a start of Spark.
$(VENV)/.classes: $(VENV)/java_home | $(VENV)/.project
	@echo "==> archiving Spark's Java classes, once: about 20 s" >&2
	@$(SPARK) $(BIN)/python -m spatialstream.spark.class_data >&2 || echo "    this Java cannot create one; Spark starts without it" >&2
	@touch $@

.PHONY: lock
lock: ## update the locks under requirements/ from pyproject.toml (UPGRADE=1: to the newest versions)
	@scripts/lock.sh

.PHONY: clean
clean: ## remove what the other targets created, except .venv and .jdk
	@rm -rf bench-output browser-output build dist demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	@find jobs tests docs scripts -name __pycache__ -type d -prune -exec rm -rf {} +
