# Every target sets up what it needs: a machine with Python 3.11 or newer, git and make is enough.
#
#   make setup PYTHON=/path/to/python    to choose the interpreter

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_REQUIRE_VIRTUALENV := 1

# The first interpreter that runs, is new enough and can make a virtual environment.
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c "$(USABLE)" 2>/dev/null && echo $$p && break; done)

# An interpreter of a version, pyenv's too: `$(call INTERPRETER,3.13)`; nothing if there is none.
INTERPRETER = $(shell for p in python$(1) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1).*/bin/python; do \
	$$p -c "$(USABLE) or '%d.%d' % sys.version_info[:2] != '$(1)'" 2>/dev/null && echo $$p && break; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := -m pip install --quiet
CODE := $(wildcard src tests bench examples)
EXTRAS := cluster,docker,grpc,kiwipy,kubernetes,postgres,s3,telemetry

.PHONY: help
help:  ## Print this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' \
		| while IFS=$$'\t' read -r target sentence; do \
			printf '  make %-12s %s\n' "$$target" "$$sentence"; done

# The dashboard, built into the package. Without npm it is left out, and its tests are skipped.
NPM := $(shell command -v npm 2>/dev/null)
PAGE := src/jackalope/doors/http/page/index.html
PAGE_PACKAGES := dashboard/node_modules/.package-lock.json
PAGE_SOURCE := $(shell find dashboard -name node_modules -prune -o -type f -print 2>/dev/null)

.PHONY: setup
setup: $(READY) $(if $(NPM),$(PAGE))  ## Create .venv with the project and the pinned tools; does nothing when up to date.

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: found no Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --constraint constraints.txt pip hatchling editables
	$(BIN)/python $(INSTALL) --constraint constraints.txt --no-build-isolation --editable '.[$(EXTRAS)]' --group dev
	touch $@

.PHONY: dashboard
dashboard: $(PAGE)  ## Build the dashboard into the package; needs npm.

$(PAGE): $(PAGE_PACKAGES) $(PAGE_SOURCE)
	@echo "dashboard: building the page"
	@cd dashboard && npm run --silent build
	@touch $@

$(PAGE_PACKAGES): dashboard/package.json dashboard/package-lock.json
	@test -n "$(NPM)" || { echo "make: the dashboard needs npm; install Node 20.19 or newer" >&2; exit 1; }
	@echo "dashboard: installing the packages that build it"
	@cd dashboard && npm ci --silent --no-audit --no-fund
	@touch $@

# The tests look at the dashboard with Debian's Chromium, compare the AMQP door with Debian's
# RabbitMQ, keep a log in Debian's PostgreSQL, and cut the links between the machines of a cluster
# with nftables, where these are installed or can be.
DEBIAN := chromium fonts-dejavu-core rabbitmq-server postgresql nftables iproute2

.PHONY: debian
debian:
	@if ! { command -v chromium && test -e /usr/sbin/rabbitmq-server && ls /usr/lib/postgresql/*/bin/initdb && command -v nft ip; } >/dev/null; then \
		if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
			apt-get update --quiet --quiet && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
				apt-get install --quiet --quiet --yes --no-install-recommends $(DEBIAN) >/dev/null; \
		else echo "make: no Chromium, RabbitMQ, PostgreSQL or nftables: THE TESTS THAT NEED THEM ARE SKIPPED" >&2; fi; fi

# AiiDA is heavy, and pins what we do not: the tests that need it have an environment of their own.
AIIDA := build/aiida

.PHONY: aiida
aiida:  ## Create build/aiida, where the tests run AiiDA; without it they are skipped.
	@$(MAKE) --no-print-directory $(AIIDA)/.ready \
		|| echo "make: AiiDA cannot be installed here: THE TESTS WITH IT ARE SKIPPED" >&2

$(AIIDA)/.ready: pyproject.toml constraints-aiida.txt
	test -x $(AIIDA)/bin/python || $(PYTHON) -m venv $(AIIDA)
	$(AIIDA)/bin/python $(INSTALL) --constraint constraints-aiida.txt --editable '.[aiida]'
	touch $@

# Django 6 runs on Python 3.12 and newer, and the backport of its tasks is tested on the Django before.
# The first interpreter that it runs on, pyenv's too.
DJANGO := build/django
DJANGO_PYTHON = $(firstword $(foreach version,3.14 3.13 3.12,$(call INTERPRETER,$(version))))

.PHONY: django
django:  ## Create build/django, where the tests run Django 6; without it they are skipped.
	@if test -z "$(DJANGO_PYTHON)"; then echo "make: no Python 3.12 or newer: THE TESTS WITH DJANGO 6 ARE SKIPPED" >&2; \
		else $(MAKE) --no-print-directory $(DJANGO)/.ready \
			|| echo "make: Django 6 cannot be installed here: THE TESTS WITH IT ARE SKIPPED" >&2; fi

$(DJANGO)/.ready: pyproject.toml constraints.txt
	test -x $(DJANGO)/bin/python || $(DJANGO_PYTHON) -m venv $(DJANGO)
	@grep -v '^django' constraints.txt > $(DJANGO)/constraints.txt
	$(DJANGO)/bin/python $(INSTALL) --constraint $(DJANGO)/constraints.txt pip hatchling editables
	$(DJANGO)/bin/python $(INSTALL) --constraint $(DJANGO)/constraints.txt --no-build-isolation --editable '.[postgres]' 'django>=6,<7'
	touch $@

# The clients in other languages. A language whose tools are missing is left out, and its tests are
# skipped with the reason. Go and Java are generated from the contract of the gRPC door, and built
# with what Debian has, because neither needs more.
CLIENTS := build/clients
TYPESCRIPT := clients/typescript
TYPESCRIPT_SOURCE := $(shell find $(TYPESCRIPT) -name node_modules -prune -o -name dist -prune -o -type f -print 2>/dev/null)
CONTRACT := src/jackalope/doors/grpc/proto
PROTO := jackalope/v1/jackalope.proto
GOCODE := /usr/share/gocode
HAS_GO = command -v go protoc-gen-go protoc-gen-go-grpc >/dev/null && test -d $(GOCODE)/src/google.golang.org/grpc
JARS := geronimo-annotation-1.3-spec gson netty-tcnative guava jsr305 error-prone-annotations opencensus-api perfmark-api protobuf \
	$(addprefix grpc-,api context core netty protobuf protobuf-lite stub) \
	$(addprefix netty-,buffer codec codec-http codec-http2 codec-socks common handler handler-proxy resolver transport)
CLASSPATH := $(subst $() $(),:,$(JARS:%=/usr/share/java/%.jar))
HAS_JAVA = command -v javac grpc_java_plugin >/dev/null && ls $(JARS:%=/usr/share/java/%.jar) >/dev/null 2>&1
TOOLCHAINS := golang-go golang-google-grpc-dev golang-google-protobuf-dev protoc-gen-go protoc-gen-go-grpc \
	protobuf-compiler protobuf-compiler-grpc-java-plugin default-jdk-headless libgrpc-java libnetty-java \
	libnetty-tcnative-java libperfmark-java libgoogle-gson-java libgeronimo-annotation-1.3-spec-java libprotobuf-java

.PHONY: clients
clients: $(if $(NPM),$(TYPESCRIPT)/dist/.ready) toolchains  ## Build the clients in other languages, and what their tests run.
	@if $(HAS_GO); then $(MAKE) --no-print-directory $(CLIENTS)/go/.ready; \
		else echo "make: no Go with gRPC: ITS TESTS ARE SKIPPED" >&2; fi
	@if $(HAS_JAVA); then $(MAKE) --no-print-directory $(CLIENTS)/java/.ready; \
		else echo "make: no Java with gRPC: ITS TESTS ARE SKIPPED" >&2; fi

# After `debian`, because two of apt-get wait for each other.
.PHONY: toolchains
toolchains: debian
	@if ! { $(HAS_GO) && $(HAS_JAVA); } && test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		apt-get update --quiet --quiet && DEBIAN_FRONTEND=noninteractive \
			apt-get install --quiet --quiet --yes --no-install-recommends $(TOOLCHAINS) >/dev/null \
			|| echo "make: Debian's packages for the clients cannot be installed here" >&2; fi

$(TYPESCRIPT)/dist/.ready: $(TYPESCRIPT_SOURCE)
	cd $(TYPESCRIPT) && npm ci --silent && npm run --silent build
	touch $@

# Without modules: the packages of Debian are a GOPATH.
$(CLIENTS)/go/.ready: $(CONTRACT)/$(PROTO) $(shell find clients/go -type f 2>/dev/null)
	rm -rf $(@D) && mkdir -p $(@D)/src/jackalope
	@protoc -I $(CONTRACT) --go_out=$(@D)/src --go-grpc_out=$(@D)/src $(PROTO)
	cp -r clients/go/client clients/go/cmd $(@D)/src/jackalope
	export GO111MODULE=off GOPATH=$(CURDIR)/$(@D):$(GOCODE); \
		go vet jackalope/client jackalope/cmd/... && go build -o $(@D)/bin/ jackalope/cmd/...
	touch $@

# Debian's Netty has TLS with ALPN by OpenSSL alone, and looks for the library under another name.
$(CLIENTS)/java/.ready: $(CONTRACT)/$(PROTO) $(shell find clients/java -type f 2>/dev/null)
	rm -rf $(@D) && mkdir -p $(@D)/generated $(@D)/classes $(@D)/lib
	@protoc -I $(CONTRACT) -I clients/java/proto --java_out=$(@D)/generated --grpc-java_out=$(@D)/generated \
		--plugin=protoc-gen-grpc-java="$$(command -v grpc_java_plugin)" $(PROTO) details.proto
	@javac -nowarn -proc:none -d $(@D)/classes -cp $(CLASSPATH) \
		$$(find $(@D)/generated clients/java/src -name '*.java')
	@echo $(CLASSPATH) > $(@D)/classpath
	cp "$$(find /usr/lib -name libnetty-tcnative.so -print -quit)" $(@D)/lib/libnetty_tcnative.so
	touch $@

# Real processes on a busy machine are late now and then. What failed runs once more, alone: a bug
# fails again, and what passes is listed as depending on time, for a person to mend.
AGAIN = { echo "== Once more, alone. What passes now depends on time: mend the test."; \
	$(BIN)/pytest --last-failed --last-failed-no-failures none --numprocesses 0 -rA --show-capture no; }

.PHONY: test
test:  ## Run every check and the whole test suite: what CI runs.
	@$(MAKE) --no-print-directory --jobs 3 check debian aiida clients django
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 60 --durations-min 5 || $(AGAIN)

# The seeds of the simulation are in groups of twenty; one of them is enough for a save.
QUICK := tests/core tests/scenarios tests/properties tests/wire \
	"tests/simulation/test_simulation.py::test_seeds[0]" tests/simulation/test_simulation.py::test_a_seed_is_a_world

.PHONY: quick
quick: $(READY)  ## Run the tests of what decides: under 90 seconds, for every save.
	$(BIN)/pytest --quiet --numprocesses 2 --dist worksteal $(QUICK)

# Every fault once, and then whichever chance names: `JACKALOPE_CHAOS_S=600 make chaos`.
.PHONY: chaos
chaos: setup debian  ## Do all faults to a cluster under load, for ten minutes or more; writes docs/explanation/chaos.md.
	$(BIN)/python -m tests.chaos

# In two processes, each of which a tracer makes slow; so tests by chance draw fewer examples. What
# only real processes run that a test starts or kills is not measured, and counts as a gap.
COVERED := $(BIN)/coverage run --parallel-mode -m pytest --quiet -p no:xdist
COVERED_HERE := tests/core tests/scenarios tests/properties tests/wire tests/doors/amqp/test_door.py \
	tests/doors/amqp/test_transcripts.py tests/doors/amqp/test_other_doors.py
COVERED_ON_DISK := tests/storage tests/broker tests/doors/peer --ignore tests/storage/test_kill.py \
	--ignore tests/storage/test_failing_disk.py --ignore tests/broker/test_kill.py --ignore tests/broker/telemetry

.PHONY: coverage
coverage: setup debian  ## Measure the branches of core, storage and wire that the tests reach.
	$(BIN)/coverage erase
	export JACKALOPE_TESTS=brief; $(COVERED) $(COVERED_HERE) & first=$$!; \
		$(COVERED) $(COVERED_ON_DISK); wait $$first
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: check
check: setup  ## Check format, lint, types, imports and tidiness, without the other tests.
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest --quiet tests/test_tidy.py

# Beside the peers it takes about half an hour; `make bench PEERS=--quick` takes two minutes.
PEERS :=

.PHONY: bench
bench: setup  ## Run the benchmarks, alone and beside the peers, and print their tables.
	$(BIN)/python -m bench core
	$(BIN)/python -m bench peers $(PEERS)

# The last release is the newest tag; `make bench-quick BASE=<commit>` names another.
BASE :=

.PHONY: bench-quick
bench-quick: setup  ## Compare the working tree with the last release, in turns: under 4 minutes.
	$(BIN)/python -m bench compare $(if $(BASE),--base $(BASE))

# An environment of its own, with what `pip install jackalope` brings and nothing else.
DEMO := build/demo

.PHONY: demo
demo: $(DEMO)/.ready $(if $(NPM),$(PAGE))  ## Paint a large picture with three workers, one of which is killed on the way.
	@$(DEMO)/bin/python -m examples.mandelbrot

$(DEMO)/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: found no Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	@echo "demo: making $(DEMO), an environment with Jackalope and what it needs"
	@test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python $(INSTALL) --constraint constraints.txt pip hatchling editables
	@$(DEMO)/bin/python $(INSTALL) --constraint constraints.txt --no-build-isolation --editable .
	@touch $@

# A release: what an index gets. `make dist URL=https://...` names where the project lives on the web,
# for the links that an index shows.
RELEASE := build/release
URL :=

.PHONY: dist
dist: $(PAGE) $(RELEASE)/.ready  ## Build the sdist and the wheel, and use the wheel in a new environment.
	rm -rf dist
	JACKALOPE_URL="$(URL)" $(RELEASE)/bin/hatchling build -t sdist -t wheel
	@test -n "$(URL)" || echo "make: no URL=...: the packages have no links to the project" >&2
	$(RELEASE)/bin/python -m tests.release dist

$(RELEASE)/.ready: constraints.txt
	@test -n "$(PYTHON)" || { echo "make: found no Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python $(INSTALL) --constraint constraints.txt pip hatchling editables
	touch $@

# Every supported interpreter that this machine has, pyenv's too. `make test-pythons TESTS=tests/core`
# runs a part of the suite.
PYTHONS := 3.11 3.12 3.13 3.14
TESTS :=

.PHONY: test-pythons
test-pythons: $(if $(NPM),$(PAGE)) debian  ## Run the suite on every interpreter from 3.11 to 3.14 that this machine has.
	@had= lacked= failed=; for found in $(foreach version,$(PYTHONS),$(version)=$(call INTERPRETER,$(version))); do \
		version=$${found%%=*} python=$${found#*=}; \
		if test -z "$$python"; then lacked="$$lacked $$version"; continue; fi; \
		had="$$had $$version"; echo "== Python $$version: $$python"; \
		$(MAKE) --no-print-directory test-python VERSION=$$version PYTHON="$$python" || failed="$$failed $$version"; done; \
	echo "== passed on:$$(for v in $$had; do case " $$failed " in *" $$v "*) ;; *) echo -n " $$v";; esac; done)"; \
	test -z "$$lacked" || echo "== not on this machine:$$lacked"; \
	test -z "$$failed" || { echo "== FAILED on:$$failed" >&2; exit 1; }

.PHONY: test-python
test-python:
	test -x build/python-$(VERSION)/bin/python || $(PYTHON) -m venv build/python-$(VERSION)
	build/python-$(VERSION)/bin/python $(INSTALL) --constraint constraints.txt pip hatchling editables
	build/python-$(VERSION)/bin/python $(INSTALL) --constraint constraints.txt --no-build-isolation --editable '.[$(EXTRAS)]' --group dev
	build/python-$(VERSION)/bin/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(TESTS)

.PHONY: docs
docs: $(READY)  ## Build the documentation as a site, in build/site; a broken link is an error.
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html -c docs/site docs build/site
	@echo "docs: open build/site/index.html"

.PHONY: bench-setup
bench-setup: setup  ## Install the peers' servers (Debian, as root) and clients; bench does it too.
	$(BIN)/python -m bench.peers.install

.PHONY: format
format: setup  ## Format the code and apply the lint fixes that are safe.
	$(BIN)/ruff check --fix --exit-zero $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: constraints
constraints:  ## Write constraints.txt anew from the newest tools; review the difference.
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python $(INSTALL) --upgrade pip hatchling editables
	build/constraints/bin/python $(INSTALL) --no-build-isolation --editable '.[$(EXTRAS)]' --group dev
	build/constraints/bin/python -m pip list --format=freeze --exclude-editable \
		| grep -v '^setuptools==' | LC_ALL=C sort --ignore-case > build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/constraints

.PHONY: clean
clean:  ## Remove all that these targets made, .venv included.
	rm -rf $(VENV) $(dir $(PAGE)) dashboard/node_modules $(TYPESCRIPT)/node_modules $(TYPESCRIPT)/dist build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
