# Thin names over the commands below; each sets up .venv by itself.
.PHONY: setup demo test check bench lock
BIN := .venv/bin
# The tests mostly wait for processes of their own.
WORKERS := 3

setup:
	@.ci/setup

# Starts a service on an embedded store, hands a task to a scripted agent in tmux, prints the answer.
demo: setup
	@$(BIN)/python examples/demo.py

# All that needs Python and tmux.
test: setup
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "not cli_agents and not bench"
	@echo "Left to 'make check': tests with real agent CLIs (cli_agents), formatting, lint, types, imports."

# Every gate: `make test`, and what it leaves out.
check: setup
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo
	@$(MAKE) --no-print-directory test
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "cli_agents and not bench"

# Measures, prints ratios, and writes .bench/latest.json.
bench: setup
	@$(BIN)/pytest -m bench -s tests/bench

# Pins the newest releases that pyproject.toml allows.
lock: setup
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --upgrade \
		--generate-hashes --no-header --quiet -o requirements.lock
