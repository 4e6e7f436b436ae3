# `make help` lists what there is. PYTHON may name another interpreter: make test PYTHON=.venv/bin/python
PYTHON ?= python3
.DEFAULT_GOAL := help
.PHONY: help venv install test quick lint frontend plotly generate new-analysis samples serve bench bench-timeline wheel ci clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

venv:  ## a virtual environment in .venv with the package (editable) and the test needs
	$(PYTHON) -m venv .venv && .venv/bin/pip install -e ".[test]"

install:  ## install the package and its test needs, editable
	$(PYTHON) -m pip install -e ".[test]"

test:  ## all tests; browser tests skip where there is no Chromium
	$(PYTHON) -m pytest -n auto

quick:  ## unit tests only
	$(PYTHON) -m pytest -q tests/unit

lint:  ## ruff, mypy, the layer rule, sizes of files and functions
	$(PYTHON) -m ruff check . && $(PYTHON) -m mypy && lint-imports && $(PYTHON) tools/sizes.py

frontend:  ## build the page into tb_sol_plugin/static (commit the result)
	cd frontend && npm ci --no-audit --no-fund && npm run check && npm test && npm run build

plotly:  ## build the custom bundle of Plotly into tb_sol_plugin/vendor (after a change in frontend/plotly; commit the result)
	cd frontend/plotly && npm ci --no-audit --no-fund && npm run build

generate:  ## write what is made from the code: cost models, pages and list of the analyses, OpenAPI
	$(PYTHON) tools/generate.py

new-analysis:  ## a small analysis and its test to begin from: make new-analysis NAME=streams [ROOM=time]
	$(PYTHON) tools/new_analysis.py $(NAME) $(or $(ROOM),time)

samples:  ## record and simulate the samples again
	$(PYTHON) samples/record_cpu.py && $(PYTHON) samples/record_decode.py && $(PYTHON) samples/simulate_gpu.py && $(PYTHON) samples/simulate_llm.py && $(PYTHON) samples/simulate_copies.py && $(PYTHON) samples/simulate_memory.py && $(PYTHON) samples/simulate_proton.py
	$(PYTHON) samples/capture_train.py && $(PYTHON) samples/capture_rl.py && $(PYTHON) samples/capture_fsdp.py
	$(PYTHON) samples/capture_memory.py && $(PYTHON) samples/capture_scaling.py

serve:  ## TensorBoard on the samples
	$(PYTHON) -m tensorboard.main --logdir samples

bench:  ## speed of the samples; more: python -m benchmarks --help
	$(PYTHON) -m benchmarks samples/cpu_transformer/*.gz samples/simulated_gpu_train/rank0*.gz

bench-timeline:  ## the timeline with 1, 10 and 96 copies of TRACE, and the table of its page; half an hour on a quiet machine
	$(PYTHON) -m benchmarks.timeline_speed $(TRACE) --copies 1,10,96
	$(PYTHON) -m benchmarks.timeline_workers $(TRACE)

wheel:  ## wheel and sdist into dist/
	$(PYTHON) -m build

ci:  ## what runs before a change lands
	.ci/run

clean:  ## remove what tools leave behind
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
