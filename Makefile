# make demo · test · lint · mutants · bench · bench-training · fuzz: each sets up what it needs, in .venv of this folder.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := .venv-extras
JOBS ?= 4
ROUNDS ?= 500
BENCH ?= --sizes 1M 10M --modes eager compiled --runs 55k 1M
export OMP_NUM_THREADS ?= 1

.PHONY: env demo test test-extras lint mutants bench bench-training fuzz freeze clean

env: $(VENV)/.env
$(VENV)/.env: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[serve]'
	touch $@

$(VENV)/.dev: $(VENV)/.env
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/scalewright demo experiments.yaml

test: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist loadgroup --durations=15 tests

# beside .venv, whose packages it sees: these want other versions of some
$(EXTRAS)/.env: $(VENV)/.dev constraints-extras.txt
	test -x $(EXTRAS)/bin/python || $(BIN)/python -m venv $(EXTRAS)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$($(EXTRAS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/shared.pth
	$(EXTRAS)/bin/python -m pip install --quiet --constraint constraints-extras.txt tensorboard mlflow wandb transformers
	touch $@

test-extras: $(EXTRAS)/.env
	$(EXTRAS)/bin/python -m pytest tests/orchestrator/train/test_mirrors.py tests/models/test_export.py \
		-k "real_package or start_together or transformers_package"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants.py

bench: $(VENV)/.dev
	for program in benchmarks/*.py; do $(BIN)/python $$program || exit 1; done

bench-training: $(EXTRAS)/.env
	$(EXTRAS)/bin/python -m pip install --quiet --no-deps --constraint constraints-extras.txt litgpt psutil
	$(EXTRAS)/bin/python benchmarks/training.py $(BENCH)

fuzz: $(VENV)/.dev
	$(BIN)/python benchmarks/fuzz --rounds $(ROUNDS)

freeze: $(VENV)/.dev $(EXTRAS)/.env
	{ head -n 1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt
	{ head -n 1 constraints-extras.txt; $(EXTRAS)/bin/python -m pip freeze --local; } > constraints.new
	mv constraints.new constraints-extras.txt

clean:
	rm -rf $(VENV) $(EXTRAS) runs jobs figures data runs.sqlite*
