# Everything a person does with the project. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
.DELETE_ON_ERROR:

# The Python that makes .venv (found when empty), and more arguments for pytest or the benchmarks.
PYTHON ?=
ARGS ?=
# How many files of tests run at a time.
WORKERS ?= 2
# GATE=1, as in .ci/run: of the heavier suites only the tests that are marked `gate`; what fails is run again by itself.
GATE ?=
# Of make flake: a test, how often it is run, and how many busy processes are beside it.
NAME ?=
TIMES ?= 20
LOAD ?= 2
# Of make paper: figures (all by default), and how large.
FIG ?=
SCALE ?=
export PYTHON

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.project $(VENV)/java_home $(VENV)/.kernels
CLUSTER := $(READY) $(VENV)/.jars
# what makes little difference to who starts Spark once, and much to tests
QUICK := $(VENV)/.classes
CONSOLE := jobs/src/spatialstream/gateway/console/vendor/console.lock

# Commands that may start Spark get the Java that was found when .venv was set up.
SPARK = JAVA_HOME="$$(cat $(VENV)/java_home)"

# A suite of tests: its name and pytest's arguments follow.
SUITE = $(BIN)/python -m tests.gate.suite $(if $(GATE),--rerun)
PART = $(if $(GATE),--gate)
# Several files of tests at a time, in the order of their names: what is long is not kept for the end, when one core has no more to do.
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# An environment whose Python or Java has gone, or that was made in another folder, is set up again.
$(shell scripts/venv.sh check)

##@ Use

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## ask all kinds of query over a feed of real earthquakes; writes demo-output/
	@$(SPARK) $(BIN)/spatialstream demo $(ARGS)

.PHONY: demo-live
demo-live: $(CLUSTER) $(CONSOLE) ## start a live stream that something happens in, and its console (ARGS='--speed 60 --open')
	@$(SPARK) $(BIN)/spatialstream demo-live $(ARGS)

.PHONY: cluster-up
cluster-up: $(CLUSTER) $(CONSOLE) ## start a live stream here: ZooKeeper, Kafka, router, worker, a gateway with its console (ARGS='--stream NAME')
	@$(SPARK) $(BIN)/spatialstream cluster up $(ARGS)

.PHONY: cluster-down
cluster-down: $(READY) ## stop what cluster-up has started; started again it goes on
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
images: ## build the images of operator, streams and development services (IMAGE_COMMAND says how; scripts/images.sh)
	@scripts/images.sh $(ARGS)

.PHONY: test-charts
test-charts: $(READY) ## run the tests of the charts (helm, kubectl and promtool are found, or built with Go)
	@scripts/tools.sh >/dev/null
	@$(SUITE) charts $(PART) tests/charts $(ARGS)

.PHONY: e2e
e2e: images e2e-only ## run the platform's tests on the cluster of KUBECONFIG, with images made by IMAGE_COMMAND

.PHONY: e2e-only
e2e-only: $(READY) ## the same, with images that are there
	@$(SPARK) $(SUITE) e2e $(PART) tests/e2e $(ARGS)

.PHONY: flake
flake: $(CLUSTER) $(QUICK) ## run one test many times beside a load, to see how it fails (NAME=test_x TIMES=50 LOAD=2)
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
format: $(READY) ## format the code and mend what can be mended
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

.PHONY: bench
bench: $(CLUSTER) ## measure speed, beside the figures to reach
	@$(SPARK) $(BIN)/python -m tests.benchmarks $(ARGS)

.PHONY: paper
paper: $(READY) ## do the paper's experiments, a verdict on each figure (FIG=7 to 15, 7.7, cost, leaves; SCALE=0.1 to try)
	@$(SPARK) $(BIN)/python -m tests.benchmarks.paper $(FIG) $(if $(SCALE),--scale $(SCALE)) $(ARGS)

.PHONY: docs
docs: $(READY) ## build the documentation into docs/_build
	@$(SPARK) $(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

.PHONY: test-all
test-all: $(CLUSTER) $(CONSOLE) $(QUICK) lint docs demo ## run everything: checks, documentation, demo, benchmarks, all tests at length (as test-api and e2e)
	@$(MAKE) --no-print-directory bench
	@scripts/tools.sh >/dev/null
	@$(SPARK) CHROMIUM="$$(scripts/chromium.sh)" HYPOTHESIS_PROFILE=explore SPATIALSTREAM_LOAD_SECONDS=600 SPATIALSTREAM_FUZZ_MESSAGES=100000 $(BIN)/python -m pytest -q --ignore=tests/e2e
	@HYPOTHESIS_PROFILE=explore $(MAKE) --no-print-directory e2e

##@ Set up

.PHONY: venv
venv: $(READY) ## make .venv with the locked packages, the project and a Java (the others do this by themselves)

$(VENV)/.packages: requirements/build.lock requirements/dev.lock
	@scripts/venv.sh packages

$(VENV)/.project: pyproject.toml $(VENV)/.packages
	@scripts/venv.sh project

$(VENV)/java_home: | $(VENV)/.packages
	@scripts/jdk.sh > $@

# The jars of a Kafka broker; the stamp names the folder that they are in.
$(VENV)/.jars: requirements/jars.pom.xml scripts/jars.sh | $(VENV)/java_home
	@scripts/jars.sh > $@

.PHONY: console
console: $(CONSOLE) ## fetch what the gateway's console is made of besides its own files (with npm)

$(CONSOLE): requirements/console.lock scripts/console.sh
	@scripts/console.sh
	@touch $@

# The compiled kernels live in the user's cache, shared by all clones and environments; the stamp only saves looking there.
$(VENV)/.kernels: $(shell find $(addprefix jobs/src/spatialstream/,model records index local) -name '*.py') | $(VENV)/.project
	@echo "==> compiling the kernels, unless this user has the same ones: some minutes of processor time, shared by two or more" >&2
	@$(BIN)/python -m spatialstream.kernels >&2
	@touch $@

# Spark's Java classes as they are in memory, in the same place: with them a start of Spark takes a quarter less processor time.
$(VENV)/.classes: $(VENV)/java_home | $(VENV)/.project
	@echo "==> archiving Spark's Java classes, once: about 20 s" >&2
	@$(SPARK) $(BIN)/python -m spatialstream.spark.class_data >&2 || echo "    this Java makes none; Spark starts without it" >&2
	@touch $@

.PHONY: lock
lock: ## write the locks under requirements/ anew from pyproject.toml (UPGRADE=1: with the newest versions)
	@scripts/lock.sh

.PHONY: clean
clean: ## remove what the other targets made, but not .venv and .jdk
	@rm -rf bench-output browser-output build dist demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	@find jobs tests docs scripts -name __pycache__ -type d -prune -exec rm -rf {} +
