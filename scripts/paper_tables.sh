#!/bin/sh
# The Lamina papers' tables and ranges beside those of this code's cost model and planner, as one HTML file and as Markdown.
#
#   scripts/paper_tables.sh [FOLDER]     writes FOLDER/paper-tables.html and .md; FOLDER is build/ if left out
#
# LAMINA_TRACES: folder with the traces azure_llm_2023_conv.csv, azure_llm_2023_code.csv and mooncake_conversation.jsonl
# LAMINA_PROFILES: folder with layer times in Vidur's format, such as h100_llama-2-70b_linear.csv
# Without them lengths have the published means, and linear layers take the catalog's MFU.
set -eu
case "${1:-}" in
  -h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$root/build}
if [ ! -x "$root/build/release/bin/lamina" ]; then
  (cd "$root" && cmake --preset release && cmake --build --preset release --target lamina)
fi
mkdir -p "$folder"
set -- --catalog "$root/configs/devices.yaml" --models "$root/configs/models"
[ -z "${LAMINA_TRACES:-}" ] || set -- "$@" --traces "$LAMINA_TRACES"
[ -z "${LAMINA_PROFILES:-}" ] || set -- "$@" --profiles "$LAMINA_PROFILES"
"$root/build/release/bin/lamina" bench paper-tables "$@" --out "$folder/paper-tables.html" "$folder/paper-tables.md"
echo "$folder/paper-tables.html"
