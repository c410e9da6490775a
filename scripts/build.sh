# Quiet CMake builds. Sourced by the other scripts, from the repository's root.

# build PRESET [TARGET...]: configures and builds build/PRESET. Prints nothing unless it fails; then what the compiler said.
build() {
  local preset=$1 log
  shift
  log=$(mktemp)
  local targets=()
  if [ $# -gt 0 ]; then
    targets=(--target "$@")
  fi
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset" "${targets[@]}"; } >"$log" 2>&1; then
    grep -v '^\[[0-9]*/[0-9]*\] \(Building\|Linking\)' "$log" >&2 || cat "$log" >&2
    echo "The build of preset '$preset' failed." >&2
    return 1
  fi
  rm -f "$log"
}
