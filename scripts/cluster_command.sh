# Sourced by cluster_up.sh and cluster_down.sh: runs `lamina cluster ACTION` of the release build. FILE defaults to configs/local.yaml.
action=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
file=$root/configs/local.yaml
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  file=$1
  shift
fi
lamina=$root/build/release/bin/lamina
if [ ! -x "$lamina" ]; then
  echo "$lamina is not there: build it with scripts/quickstart.sh --once" >&2
  exit 1
fi
exec "$lamina" cluster "$action" --config "$file" "$@"
