#!/usr/bin/env bash
# Stops what cluster_up.sh started, and nothing else: scripts/cluster_down.sh [FILE] [--dry-run]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/cluster_command.sh" down "$@"
