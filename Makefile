# The tasks of this repository.  `make` alone lists them.
PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help install check format test bench bench-quick demo ci clean

help:  ## list the tasks
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

install:  ## editable install with the test tools
	$(PYTHON) -m pip install -e '.[test]'

check:  ## ruff and mypy
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format:  ## let ruff format and fix
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

test:  ## the whole test suite
	$(PYTHON) -m pytest -q

bench:  ## kernels against hand-written NumPy and the tools that are installed
	$(PYTHON) -m tapec bench

bench-quick:  ## the same at small sizes
	$(PYTHON) -m tapec bench --quick

demo:  ## the main job: fit a mixture to Old Faithful, checked
	$(PYTHON) -m tapec demo

ci:  ## what the continuous integration runs, in fresh environments
	.ci/run

clean:  ## remove what builds and tests leave
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
