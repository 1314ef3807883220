# One word per task; `just` alone runs the gate. Without just on the machine: uv run just TASK

uv := env("UV", "uv")
export PYTHONDONTWRITEBYTECODE := "" # where an environment forbids bytecode, every process would compile all libraries
everyday := "not agents and not chromium and not postgres and not slow"

# the gate: what holds before a commit
[default]
check: lint test

# format, lint, types, import contracts
lint:
    {{ uv }} run ruff format --check
    {{ uv }} run ruff check
    {{ uv }} run mypy
    {{ uv }} run lint-imports

# the everyday tests; more workers than a small machine has cores, for many tests wait, and each worker collects them all
test *ARGS:
    {{ uv }} run pytest -n 3 --dist worksteal -m "{{ everyday }}" {{ ARGS }}

# every test, with coverage; a missing server, browser or agent program is skipped with its reason
all:
    {{ uv }} run --all-extras --group agents --group browser --group engines pytest -m "" --cov

# format, and fix what ruff can fix
format:
    {{ uv }} run ruff check --fix
    {{ uv }} run ruff format

# run the examples and compare what they print
examples:
    {{ uv }} run pytest -m "" tests/test_examples.py

# change a module in small ways and see which changes no test notices: just mutants amplifier_hooks/dispatch/merge.py
mutants MODULE *ARGS:
    {{ uv }} run --group mutants scripts/mutants.py {{ MODULE }} {{ ARGS }}

# run the path of an act under seeded schedules, with Python 3.12: just simulate --schedules 100000
simulate *ARGS:
    {{ uv }} run --isolated --python {{ env("PYTHON312", "3.12") }} --no-default-groups --group simulation python -m tests.simulation {{ ARGS }}

# build the documents as a site in .site/html, with every link checked
docs *ARGS:
    {{ uv }} run --all-extras --group docs scripts/site.py {{ ARGS }}

# make the pictures of the terminal in docs/images anew
pictures:
    AMPLIFIER_PICTURES=write {{ uv }} run pytest -m "" tests/end_to_end/test_terminal_pictures.py

# list the benchmarks, or run one: just bench dispatch
bench *ARGS:
    {{ uv }} run python -m benchmarks {{ ARGS }}

# test an end of the supported range: just bounds oldest, or just bounds newest langchain
bounds *ARGS:
    {{ uv }} run --no-project scripts/bounds.py {{ ARGS }}

# build the release from the last commit, and check it in empty environments; uploads nothing
release:
    {{ uv }} run --group release scripts/release.py

# pin the whole dependency tree in pyproject.toml: just pin, or just pin --upgrade
pin *ARGS:
    {{ uv }} run --no-project scripts/pin.py {{ ARGS }}
