# make demo · make test · make lint · make mutants · make bench · make fuzz: each sets up what it needs, in .venv of this folder.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
ROUNDS ?= 500
export OMP_NUM_THREADS ?= 1

.PHONY: env demo test lint mutants bench fuzz freeze clean

env: $(VENV)/.env
$(VENV)/.env: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.env
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/scalewright demo experiments.yaml

test: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist loadgroup tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants.py

bench: $(VENV)/.dev
	for program in benchmarks/*.py; do $(BIN)/python $$program || exit 1; done

fuzz: $(VENV)/.dev
	$(BIN)/python benchmarks/fuzz --rounds $(ROUNDS)

freeze: $(VENV)/.dev
	{ head -n 1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) runs jobs figures data runs.sqlite*
