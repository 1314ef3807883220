#!/usr/bin/env bash
# Other people's agent programs, for the tests that run them: into .agents/, from the npm registry, nothing else touched.
# Claude Code comes with the claude-agent-sdk wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
npm install --silent --no-audit --no-fund --no-package-lock --prefix .agents @openai/codex@0.169.0 @google/gemini-cli@0.61.0
