# The Debian 12 packages that lamina needs, and how they are installed. Sourced by the other scripts.

BUILD_PACKAGES=(
  ca-certificates ccache cmake g++ git ninja-build pkg-config
  ibverbs-providers libboost1.81-dev libboost-context1.81-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev libibverbs-dev libicu-dev libpcre2-dev
  libprotobuf-dev libspdlog-dev libssl-dev libucx-dev libxxhash-dev libyaml-cpp-dev nlohmann-json3-dev prometheus-cpp-dev protobuf-compiler
)
TEST_PACKAGES=(chromium-headless-shell curl iproute2 openssl python3 ucx-utils)
# What `scripts/test.sh --all` needs beside those.
ALL_TEST_PACKAGES=(busybox-static clang clang-format kmod libclang-rt-14-dev perftest qemu-system-x86)

# install_packages NAME...: installs those that are missing, and says which. Asks for root only then.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return
  fi

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "These packages are missing, and neither root nor sudo is at hand to install them: ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "Installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "Could not install: ${missing[*]}" >&2
    return 1
  fi
  rm -f "$log"
}
