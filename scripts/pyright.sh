#!/usr/bin/env bash
# A second type checker for the public API, beside mypy: pyright, into .tools/, from the npm registry, nothing else
# touched. pyproject.toml has its settings.
set -euo pipefail
cd "$(dirname "$0")/.."
npm install --silent --no-audit --no-fund --no-package-lock --prefix .tools pyright@1.1.414
.tools/node_modules/.bin/pyright --pythonpath .venv/bin/python
