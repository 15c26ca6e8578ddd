# Every target sets up what it needs: a fresh clone needs git, make and Python 3.11+.
# Java 17+ (for Spark) is installed if possible (Debian, root); otherwise a message says what to install.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
SEEDS ?= 300
TIME_LIMIT ?= 300
NEMESIS ?= mixed
TIER ?= portable
HOURS ?= 8
WORKLOAD ?= append
RUNS ?= 1
PARTITIONS ?= 1000,100000
TRIALS ?= 100
ROUNDS ?= 5
SHARE ?= 1
N ?= 300
PACKAGES ?=
DRAW ?=
WORKERS ?= 3

# Everything is compiled once, also where the environment forbids bytecode beside the sources.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode
# Sets of strings have the same order in every run of CI; test-long draws another.
export PYTHONHASHSEED ?= 0

FORM = $(BIN)/python -c "import pykraft.compiled as form; form.WHY_INTERPRETED is None or exit(form.WHY_INTERPRETED)"
PYTEST = $(BIN)/python -m pytest --junitxml build/$(if $(COMPILED),compiled,timings)-$@.xml

.PHONY: setup compiled is-compiled interpreted wheel pins java kcat check test test-long clients timings sizes coverage docs screenshots demo jepsen jepsen-long root-tools power-loss spark-faults fuzz sim sim-determinism mutants mutants-processes mutants-random groups-differential transactions-differential bench bench-metadata bench-failover bench-kafka bench-groups bench-transactions bench-spark proto format clean

setup: $(VENV)/installed build/path/pykraft

# mypy looks for the package under its name; the directory of the clone may have another.
build/path/pykraft:
	@mkdir -p build/path && ln -sfn ../.. $@

$(VENV)/installed: pyproject.toml constraints.txt $(wildcard kafka_protocol/*.c spark/*.c)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "python3-venv is missing: installing it"; apt-get update -qq && apt-get install -y -qq python3-venv python3-pip && $(PYTHON) -m venv $(VENV); }
	@command -v cc >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "a C compiler is missing: installing it"; apt-get update -qq && apt-get install -y -qq gcc libc6-dev python3-dev >/dev/null; \
	  else echo "a C compiler is missing: records will be read in Python, which is slower"; fi; }
	@$(BIN)/pip install --quiet --upgrade --constraint constraints.txt pip
	@$(BIN)/pip install --quiet --constraint constraints.txt --build-constraint constraints.txt \
	  --editable ".[console,jepsen,spark,web]" --group test --group lint --group docs
	@touch $@

# In place, of the modules in packaging/compiling/modules.toml: all commands of this clone then run compiled.
compiled: setup
	@cd packaging && ../$(BIN)/python -m compiling

is-compiled: setup
	@$(FORM) 2>/dev/null || $(MAKE) compiled
	@$(FORM)

interpreted: setup
	@cd packaging && ../$(BIN)/python -m compiling --remove

# As users have it: built and installed in environments of its own, and tried there.
wheel: setup
	@rm -rf build/wheel build/lib* build/bdist* && mkdir -p build/wheel
	@PYKRAFT_INTERPRETED= $(BIN)/pip wheel --quiet --no-deps --constraint constraints.txt --build-constraint constraints.txt --wheel-dir build/wheel . \
	  2> build/wheel/log || { cat build/wheel/log; exit 1; }
	@$(PYTHON) -m venv build/wheel/venv
	@build/wheel/venv/bin/pip install --quiet --constraint constraints.txt build/wheel/*.whl
	build/wheel/venv/bin/python tests/packaging/installed_wheel.py

# The newest version of everything that setup and tests install, for every Python that is supported.
pins: setup
	@$(BIN)/pip install --quiet --constraint constraints.txt uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras \
	  $(addprefix --group ,test lint docs apart) --no-annotate --custom-compile-command "make pins" --output-file constraints.txt pyproject.toml

java:
	@if java -version 2>&1 | head -n 1 | grep -qE '"(1[7-9]|[2-9][0-9])'; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Java 17+ is missing: installing it"; \
	  apt-get update -qq && { apt-get install -y -qq openjdk-17-jre-headless || apt-get install -y -qq default-jre-headless; } >/dev/null; \
	else echo "Java 17 or newer is missing: Spark needs it. Install it (Debian: apt-get install openjdk-17-jre-headless)"; fi

kcat:
	@command -v kcat >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "kcat is missing: installing it"; apt-get update -qq && apt-get install -y -qq kcat >/dev/null; \
	  else echo "kcat is missing: its tests are skipped (Debian: apt-get install kcat)"; fi; } || true

# Interpreted; COMPILED=1: on compiled modules.
check: setup $(if $(COMPILED),is-compiled)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(if $(COMPILED),,PYKRAFT_INTERPRETED=1) $(PYTEST) -q -n 2 -m "not interop and not spark and not slow and not long"

# On compiled modules, as users run them; a clone that was not compiled before is not so afterwards.
# More processes than cores: most of these tests wait for something.
test: check java kcat
	@$(FORM) 2>/dev/null && was_compiled=yes; $(MAKE) is-compiled && \
	  { $(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "(interop or spark or slow) and not long"; \
	    status=$$?; test -n "$$was_compiled" || $(MAKE) interpreted; exit $$status; }

# What takes minutes or compares with a running Kafka (tests/long_tests.py), more seeds, and all planted bugs.
test-long: setup java kcat
	PYTHONHASHSEED=random $(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m long
	PYTHONHASHSEED=random $(MAKE) sim SEEDS=300
	$(MAKE) mutants mutants-processes

# Ahead of the tests: programs of clients in other languages, kept in one place.
clients: setup java
	$(BIN)/python -m tests.interop.built_programs

# Where the time of the last runs went. WRITE=yes: for the order of the next.
timings: setup
	$(BIN)/python -m tests.timings build/timings-*.xml $(if $(WRITE),--write)

sizes: setup
	@$(BIN)/python -m tests.sizes

# Of the tests of make check; it takes three times as long. In build/coverage.
coverage: setup
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -q -m "not interop and not spark and not slow and not long" -o cpu_limit_s=1200 -o wall_limit_s=3600 $(ARGUMENTS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage json --quiet -o - | $(BIN)/python -m tests.covered

# In build/site. A warning is an error: not with --quiet, which would count none.
docs: setup
	$(BIN)/python -m tests.docs.english
	NO_MKDOCS_2_WARNING=1 PYKRAFT_INTERPRETED=1 $(BIN)/mkdocs build --strict

# Takes the pictures of README and site again. Look at them before they are committed.
screenshots: setup
	$(BIN)/python -m tests.docs.screenshots

demo: setup java
	$(BIN)/python examples/demo.py

# TIER=root: in network namespaces and on file systems of the run's own (as root).
jepsen: setup $(if $(filter root,$(TIER)),root-tools)
	$(BIN)/pykraft jepsen run --workload $(WORKLOAD) --time-limit $(TIME_LIMIT) --seed $(SEED) --runs $(RUNS) --tier $(TIER) --nemesis $(NEMESIS) $(if $(filter spark,$(CHECK)),--check-in-spark)

jepsen-long: setup $(if $(filter 0,$(shell id -u)),root-tools)
	$(BIN)/python -m pykraft.jepsen_like.faults.runs.long_run --hours $(HOURS) --seed $(SEED)

root-tools:
	@command -v ip >/dev/null && command -v nft >/dev/null && command -v mkfs.ext4 >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "iproute2, nftables or e2fsprogs is missing: installing them"; \
	    apt-get update -qq && apt-get install -y -qq iproute2 nftables e2fsprogs >/dev/null; \
	  else echo "iproute2, nftables and e2fsprogs are needed, and root"; exit 1; fi; }

power-loss: setup root-tools
	$(BIN)/pykraft jepsen run --workload changes --tier root --nemesis power-loss,power-loss-all --time-limit $(TIME_LIMIT) --seed $(SEED) --runs $(RUNS)

spark-faults: setup java
	$(BIN)/python -m pykraft.jepsen_like.faults.spark_rounds --rounds $(ROUNDS) --seed $(SEED)

sim: setup
	$(BIN)/python -m pykraft.jepsen_like.simulation --seeds $(SEEDS)

# SEED=7 N=200000: requests of all APIs and versions, drawn by the seed, to a node in this process.
fuzz: N := 20000
fuzz: setup
	$(BIN)/python -m pykraft.jepsen_like.simulation.fuzz --seed "$(SEED)" --requests $(N)

sim-determinism: setup
	$(BIN)/python -m pykraft.jepsen_like.simulation.determinism --ring quorum --seeds $(SEEDS)

# SHARE=3 DRAW=TEXT: one bug in three, drawn by any text. CHANGED=COMMIT: what has changed since, and a fixed tenth.
mutants: setup
	$(BIN)/python -m tests.mutants.run_mutants --share $(SHARE) --draw "$(DRAW)" $(if $(filter undefined,$(origin CHANGED)),,--changed "$(CHANGED)")

mutants-processes: setup
	$(BIN)/python -m tests.mutants.run_mutants --suite processes --processes 2

# SEED=7 N=300 PACKAGES="quorum broker/replicas": bugs that operators over the syntax tree make, drawn by the seed.
mutants-random: setup
	$(BIN)/python -m tests.mutants.at_random --seed "$(SEED)" --number $(N) --measure all $(ARGUMENTS) $(PACKAGES)

groups-differential: setup java
	$(BIN)/python -m pykraft.jepsen_like.conformance.groups_driver --first $(SEED) --seeds $(SEEDS) $(if $(KAFKA_LIBS),--kafka-libs $(KAFKA_LIBS)) $(ARGUMENTS)

transactions-differential: setup java
	$(BIN)/python -m pykraft.jepsen_like.conformance.transactions_driver --first $(SEED) --seeds $(SEEDS) $(if $(KAFKA_LIBS),--kafka-libs $(KAFKA_LIBS)) $(ARGUMENTS)

bench: setup
	$(BIN)/python benchmarks/vs_kafka.py --systems pykraft --rows raw,replicated --rounds 1 --out build/bench

bench-metadata: setup
	$(BIN)/python benchmarks/metadata.py --partitions $(PARTITIONS)

bench-failover: setup
	$(BIN)/python benchmarks/failover.py --trials $(TRIALS)

bench-kafka: compiled
	$(BIN)/python benchmarks/vs_kafka.py --rounds $(ROUNDS) $(if $(KAFKA_LIBS),--kafka-libs $(KAFKA_LIBS))

bench-groups: compiled
	$(BIN)/python benchmarks/groups.py --rounds $(ROUNDS) $(if $(KAFKA_LIBS),--kafka-libs $(KAFKA_LIBS))

bench-transactions: compiled
	$(BIN)/python benchmarks/transactions.py --rounds $(ROUNDS) $(if $(KAFKA_LIBS),--kafka-libs $(KAFKA_LIBS))

# Spark's own connector is to be had for this version of Spark, not yet for the one that make setup installs.
SPARK_VERSION ?= 4.2.0

build/spark-$(SPARK_VERSION)/installed: pyproject.toml $(wildcard kafka_protocol/*.c spark/*.c)
	@$(PYTHON) -m venv build/spark-$(SPARK_VERSION)
	@build/spark-$(SPARK_VERSION)/bin/pip install --quiet --editable ".[bench,spark]" pyspark==$(SPARK_VERSION)
	@touch $@

bench-spark: setup java build/spark-$(SPARK_VERSION)/installed
	build/spark-$(SPARK_VERSION)/bin/python benchmarks/spark.py --rounds $(ROUNDS)

proto: setup
	cd proto && for file in quorum/pb/quorum.proto metadata_log/pb/controller.proto; do \
	  ../$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=.. --pyi_out=.. $$file; done

format: setup
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
