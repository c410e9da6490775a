#!/usr/bin/env bash
# Starts the cluster of a YAML file and waits until it serves: scripts/cluster_up.sh [FILE] [--dry-run] [--no-serve]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cluster_command.sh" up "$@"
