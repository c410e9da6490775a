# CMake builds and test runs that show how far they are. Sourced by the other scripts, from the repository's root.

# show_progress LOG: reads what ninja or ctest prints, shows how far they are, and writes everything else into LOG. On a terminal
# one line is rewritten in place; elsewhere a line is printed once a minute, so that nobody takes long work for a hang.
show_progress() {
  local log=$1 line next_line=$((SECONDS + 60)) begin=$SECONDS shown=
  local built='^\[([0-9]+)/([0-9]+)\] (Building|Linking|Generating)' tested='^ *([0-9]+)/([0-9]+) Test .*(Passed|Skipped)'
  while IFS= read -r line; do
    if [[ $line =~ ^\ *Start\ +[0-9]+: ]]; then continue; fi
    if [[ ! $line =~ $built && ! $line =~ $tested ]]; then
      printf '%s\n' "$line" >>"$log"
      continue
    fi
    local progress="  ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} after $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s"
    if [ -t 1 ]; then
      printf '\r%s ' "$progress"
      shown=yes
    elif [ "$SECONDS" -ge "$next_line" ]; then
      printf '%s\n' "$progress"
      next_line=$((SECONDS + 60))
    fi
  done
  if [ -n "$shown" ]; then printf '\n'; fi
}

# build PRESET [TARGET...]: configures and builds build/PRESET. Prints its progress, and if it fails what the compiler said.
build() {
  local preset=$1 log
  shift
  log=$(mktemp)
  local targets=()
  if [ $# -gt 0 ]; then
    targets=(--target "$@")
  fi
  if ! cmake --preset "$preset" >"$log" 2>&1 || ! cmake --build --preset "$preset" "${targets[@]}" 2>&1 | show_progress "$log"; then
    cat "$log" >&2
    rm -f "$log"
    echo "The build of preset '$preset' failed." >&2
    return 1
  fi
  rm -f "$log"
}
