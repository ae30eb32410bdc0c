# `make` alone lists the targets.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The linter is installed once for all clones of a user.
LINTER   := v2.15.0
TOOLS    ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pawl
GOLANGCI := $(TOOLS)/golangci-lint-$(LINTER)/golangci-lint

SECONDS  ?= 60
DB       ?= sqlite
SEED     ?=
STORM    ?=
SEEDS    ?= 2000
WITHOUT  ?=
FUZZTIME ?= 30s

# Tests are linked without what debuggers read (-s -w), which takes a third of the time.
# SQLite in Go is a machine translation; under the race detector it would be ten times as slow and find nothing. The library for JSON Schema
# compiles those of five drafts whenever a process begins.
# Nor are conversions of unsafe pointers checked (checkptr): that takes up to a tenth of the time, and hardly anything here has one.
RACELESS := -gcflags='all=-d=checkptr=0' -gcflags='modernc.org/...=-race=false' -gcflags='github.com/santhosh-tekuri/...=-race=false'

# What is compiled in one clone is there for the others.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)

# The packages whose tests take longest begin first, so that no core is idle in the end. Most tests wait for something now and
# then, so more of them run side by side than there are cores. Memory is cheaper than collecting it (GOGC): a part of store/sqlite
# took 111 s of CPU instead of 174. Under the race detector a process would wait a second before it ends, and the pages of its memory
# are larger here (GORACE): engine took 31 s instead of 36, store/sqlite 41 s of CPU instead of 57. What vet finds is found by make
# check and make lint.
LONGEST := ./internal/cli ./store/postgres ./internal/proof/crashes ./internal/proof/remote ./host/ssh ./app ./internal/proof/storm ./runner/slurm \
	./postgres ./api . ./broker/pgnotify ./runner/process ./store/sqlite ./internal/proof/processes ./store/fake ./recovery ./internal/bench/...
# Temporary files are in memory where there is room and programs may run: the tests take an eighth less CPU than on a disk, which
# make test-long has.
MEMORY  := $(shell [ -w /dev/shm ] && [ "$$(df -k --output=avail /dev/shm | tail -n 1)" -ge 4000000 ] && \
	! findmnt -n -o OPTIONS -M /dev/shm | grep -qw noexec && echo /dev/shm)
TESTS   := PAWL_TEST_REQUIRE=1 GOGC=400 GORACE='atexit_sleep_ms=10 no_huge_pages_for_shadow=0' $(GO) run ./internal/proof/slowest

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary ./pawl (the first time it takes minutes: it compiles SQLite)
	@echo "building ./pawl: the first time one to two minutes on two idle cores, most of it SQLite; then seconds"
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o pawl ./cmd/pawl

.PHONY: image
image: build ## Build deploy/Containerfile with podman on a base of busybox, and try it (needs podman, runc and busybox-static)
	./deploy/try.sh ./pawl

.PHONY: deps
deps: ## Look for what the tests need; as root, install what is missing
	@./.ci/deps

.PHONY: check
check: ## While you work: vet, and the quick tests, without the race detector and without servers
	CGO_ENABLED=0 $(GO) vet ./...
	$(if $(TMPDIR),,$(MEMORY:%=TMPDIR=%)) CGO_ENABLED=0 GOGC=400 $(GO) test -short -ldflags='-s -w' -p 3 -parallel 4 ./...

.PHONY: test
test: deps ## Run the tests of every part under the race detector; a missing server is a failure
	@echo "testing: seven to twenty minutes on two cores; longer the first time, when all of it is compiled for the race detector"
	$(if $(TMPDIR),,$(MEMORY:%=TMPDIR=%)) CGO_ENABLED=1 $(TESTS) -race $(RACELESS) -ldflags='-s -w' -vet=off -p 3 -parallel 4 -timeout 40m $(LONGEST) ./...

.PHONY: test-all
test-all: ## make test, and the cases beside the main ones: after a change to what they are about, and before a merge of many changes
	PAWL_TEST_EVERY=1 $(MAKE) --no-print-directory test

.PHONY: test-long
test-long: deps build test-all ## What takes longer than a change can wait, within two hours: before a release, or after a change to what it is about
	@echo "tests at full length: outages of minutes, long storms, large stores, all calls through a pooler"
	PAWL_TEST_LONG=1 CGO_ENABLED=0 $(TESTS) -p 1 -timeout 60m ./internal/proof/storm ./internal/proof/crashes ./internal/proof/remote ./internal/bench/programs ./internal/cli ./runner/process ./runner/slurm ./recovery ./job/turns ./store/...
	@echo "storms and crashes: no promise is broken while processes, networks, disks and clocks fail"
	$(MAKE) --no-print-directory chaos DB=sqlite SECONDS=120
	$(MAKE) --no-print-directory chaos DB=postgres SECONDS=120
	$(MAKE) --no-print-directory crashes DB=sqlite
	$(MAKE) --no-print-directory crashes DB=postgres
	$(MAKE) --no-print-directory crashes DB=ssh
	$(MAKE) --no-print-directory crashes DB=slurm
	@echo "simulated worlds: orders of events that hardly ever come"
	$(MAKE) --no-print-directory sim
	@echo "mutants: the tests notice when a guard is gone"
	$(MAKE) --no-print-directory chaos-mutants
	@echo "paper: 10,000 programs end as soon as they can; it wants the machine for itself"
	$(MAKE) --no-print-directory bench-paper

.PHONY: lint
lint: $(GOLANGCI) ## Run golangci-lint at its pinned version
	CGO_ENABLED=0 $(GOLANGCI) run

.PHONY: fmt
fmt: $(GOLANGCI) ## Format the code (gofumpt)
	$(GOLANGCI) fmt

$(GOLANGCI):
	@echo "installing golangci-lint $(LINTER) for all clones: seconds, or one to two minutes where it was never compiled"
	@CGO_ENABLED=0 GOFLAGS= GOBIN=$(@D) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINTER)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

.PHONY: chaos
chaos: deps ## Raise a storm of faults for SECONDS (60) over processes on DB (sqlite, postgres); SEED repeats load and faults
	CGO_ENABLED=0 $(GO) run ./internal/proof/storm -db '$(DB)' -seconds $(SECONDS) $(if $(SEED),-seed $(SEED)) $(STORM)

.PHONY: crashes
crashes: deps ## Let processes die at each named point and at random moments for SECONDS; DB and SEED as for chaos, or DB=ssh or slurm
	CGO_ENABLED=0 $(GO) run ./internal/proof/crashes -db '$(DB)' -seconds $(SECONDS) $(if $(SEED),-seed $(SEED))

# How Pawl is without a guard stands in NAME.mutants, beside NAME.go. CONTRIBUTING.md says how one is added.
.PHONY: chaos-mutants
chaos-mutants: deps ## Go without one guard after the other; somebody must notice (about fifteen minutes)
	CGO_ENABLED=0 $(GO) run ./internal/proof/mutants

SIMBUILD := $(or $(TMPDIR),/tmp)/pawl-sim

.PHONY: sim
sim: ## Live SEEDS (2000) simulated worlds in virtual time; SEED replays one, and tells all that happens in it; WITHOUT a guard it must notice
	@CGO_ENABLED=0 $(GO) test -c -tags exact -overlay "$$($(GO) run ./internal/proof/sim/overlay $(SIMBUILD) $(WITHOUT))" -o $(SIMBUILD)/sim.test ./internal/proof/sim
	@PAWL_WITHOUT='$(WITHOUT)' $(if $(SEED),GOMAXPROCS=1 GOGC=off $(SIMBUILD)/sim.test -test.v -test.run '^TestSeed$$' -seed $(SEED),$(SIMBUILD)/sim.test -test.timeout 0 -test.run '^(TestSeeds|TestReplay)$$' -seeds $(SEEDS))

.PHONY: bench
bench: build ## Measure throughput, latency, idle cost and programs with this build, also over SSH
	./pawl bench tasks
	./pawl bench latency
	./pawl bench idle
	./pawl bench local
	./pawl bench ssh --only launch,latency,end,copy

.PHONY: bench-paper
bench-paper: deps build ## Run 10,000 programs under a limit of 50, on both databases, also with outages and over SSH, and what other ways cost (within 18 minutes); OUT gets the runs as JSON, SVG a drawing
	CGO_ENABLED=0 $(GO) run ./internal/proof/paper -pawl ./pawl $(if $(OUT),-out '$(OUT)') $(if $(SVG),-svg '$(SVG)')
