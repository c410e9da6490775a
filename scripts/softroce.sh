#!/usr/bin/env bash
# Runs a command on RDMA without an RDMA NIC: boots Debian's kernel under QEMU with Soft-RoCE (rdma_rxe) and runs the command in there, on
# this machine's file system, to which it cannot write.
#
#   softroce.sh [--hosts 1|2] [--timeout S] [--memory MB] [--cpus N] -- COMMAND [ARGUMENT...]
#
# Example: scripts/softroce.sh -- ibv_devinfo -d rxe0
#
#   --hosts    1: one virtual machine (default). 2: two on one virtual Ethernet; both run the command
#   --timeout  seconds until the machines are stopped; default 300
#   --memory   of each machine, in MB; default 2048. What the command writes goes there too, and is gone afterwards
#   --cpus     of each machine; default 2
#
# In the machine: $RDMA_RANK is 0 or 1, $RDMA_ADDR the address of this machine's RDMA device rxe0, $RDMA_PEER that of the other (of this
# one, if there is only one). The working directory is the same. $SOFTROCE_OUT is a folder that comes back as the folder --out names:
#   --out DIR  receives DIR/host0 and DIR/host1
#
# Exit status: that of the command, on two hosts the first that is not 0; 124 if the time ran out; 125 if a machine did not get that far.
# The kernel is taken from Debian once and kept in ${XDG_CACHE_HOME:-~/.cache}/lamina. The processor is emulated
# (KVM is not there in most containers, or does not work): much slower than the machine itself, so time nothing in here.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

PACKAGES=(qemu-system-x86 busybox-static kmod iproute2 ibverbs-providers)
COMMANDS=(qemu-system-x86_64 busybox modprobe rdma)
MODULES=(crc32_generic virtio_pci virtio_net 9pnet_virtio 9p overlay veth bridge sch_netem rdma_rxe ib_uverbs)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/lamina

usage() { sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"; }

fail() {
  echo "softroce.sh: $*" >&2
  exit 2
}

parse_arguments() {
  hosts=1 memory=2048 cpus=2 limit=300 out=""
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --hosts | --timeout | --memory | --cpus | --out)
        [ $# -gt 1 ] || fail "$1 needs a value; see --help"
        case $1 in
          --hosts) hosts=$2 ;;
          --timeout) limit=$2 ;;
          --memory) memory=$2 ;;
          --cpus) cpus=$2 ;;
          --out) out=$2 ;;
        esac
        shift 2
        ;;
      --) shift && break ;;
      *) fail "unknown argument \"$1\"; the command stands after --, see --help" ;;
    esac
  done
  [[ $hosts =~ ^[12]$ ]] || fail "--hosts is \"$hosts\"; it can be 1 or 2"
  [[ $limit$memory$cpus =~ ^[0-9]+$ ]] || fail "--timeout, --memory and --cpus are whole numbers"
  [ $# -gt 0 ] || fail "no command; it stands after --, see --help"
  command=("$@")
}

check_packages() {
  local missing=() name
  for name in "${COMMANDS[@]}"; do
    command -v "$name" >/dev/null || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] || fail "not installed: ${missing[*]}. On Debian 12: apt-get install ${PACKAGES[*]}"
}

# Sets `kernel`, the version, and `image`, the folder with its unpacked package.
fetch_kernel() {
  local package unpacked
  command -v apt-cache >/dev/null || fail "the kernel comes from Debian's packages, but there is no apt-cache"
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')
  [ -n "$package" ] || fail "apt does not know linux-image-amd64: run apt-get update"
  kernel=${package#linux-image-}
  image=$CACHE/kernel-$kernel
  [ ! -e "$image/boot/vmlinuz-$kernel" ] || return 0
  mkdir -p "$CACHE"
  unpacked=$(mktemp -d "$CACHE/unpacking.XXXXXX")
  if ! (cd "$unpacked" && apt-get download -q "$package" && dpkg -x "$package"_*.deb root) >"$unpacked/log" 2>&1; then
    cat "$unpacked/log" >&2
    rm -rf "$unpacked"
    fail "could not download $package: run apt-get update, or is there no network?"
  fi
  depmod -b "$unpacked/root" "$kernel"
  mv -T "$unpacked/root" "$image" 2>/dev/null || [ -e "$image/boot/vmlinuz-$kernel" ] # another run was first
  rm -rf "$unpacked"
}

# The first programs of a machine: load the modules, mount this machine's files with a layer in memory above, run /exchange/run.sh there.
write_initrd() {
  local root=$work/initrd module
  mkdir -p "$root"/{bin,dev,proc,sys,modules,below,layer,root}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for module in "${MODULES[@]}"; do
    modprobe -d "$image" -S "$kernel" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
  done | awk '!seen[$0]++' | while read -r module; do
    cp "$module" "$root/modules/"
    basename "$module"
  done >"$root/modules/order"
  cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </modules/order
files=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$files,ro,cache=loose" files /below
mount -t tmpfs -o size=80% layer /layer && mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/below,upperdir=/layer/upper,workdir=/layer/work overlay /root
for folder in proc sys dev; do mount -o bind "/$folder" "/root/$folder"; done
for folder in dev/shm run tmp exchange; do mkdir -p "/root/$folder"; done
mount -t tmpfs shm /root/dev/shm && mount -t tmpfs run /root/run
mount -t 9p -o "$files" exchange /root/exchange
chroot /root /bin/bash /exchange/run.sh
sync
poweroff -f
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | busybox cpio -o -H newc | gzip -1) >"$work/initrd.gz" 2>"$work/initrd.log"
}

# write_guest_script RANK: what runs in a machine once its files are there.
write_guest_script() {
  local folder=$work/host$1 quoted
  mkdir -p "$folder/out"
  printf -v quoted '%q ' "${command[@]}"
  cat >"$folder/run.sh" <<GUEST
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root SOFTROCE_OUT=/exchange/out
export RDMA_RANK=$1 RDMA_ADDR=10.77.0.$(($1 + 1)) RDMA_PEER=10.77.0.$((hosts == 2 ? 2 - $1 : 1))
ulimit -l unlimited
ip link set lo up
if [ $hosts = 2 ]; then
  nic=\$(basename "\$(dirname "\$(ls -d /sys/class/net/*/device | head -1)")")
else
  nic=rdma0
  ip link add \$nic type veth peer name rdma1 && ip link set rdma1 up
fi
ip addr add \$RDMA_ADDR/24 dev \$nic
ip link set \$nic mtu 4200 2>/dev/null  # so that RDMA packets carry 4096 bytes
ip link set \$nic up
rdma link add rxe0 type rxe netdev \$nic || { echo "Soft-RoCE does not start on \$nic" && exit; }
for _ in \$(seq 60); do busybox ping -c1 -W1 \$RDMA_PEER >/dev/null 2>&1 && break; done
(cd $(printf %q "$PWD") && $quoted)
echo \$? >/exchange/status
GUEST
}

# Sets `preload` to a library with fmaf() and fma(), which QEMU calls for each lane of a guest's multiply-add. QEMU's own code is SSE, the code
# that it makes for guests with AVX leaves the upper halves of registers filled, and glibc's fmaf() then mixes both, which on Intel's servers of
# 2023 costs more than 100 ns a call: a guest makes 5 million multiply-adds a second, and 34 million if fmaf() clears these halves first.
write_fma() {
  preload=
  [ "$(uname -m)" = x86_64 ] && grep -qw fma /proc/cpuinfo && command -v cc >/dev/null || return 0
  cc -O2 -mavx -mfma -shared -fPIC -x c -o "$work/fma.so" - <<'C'
#include <immintrin.h>
float fmaf(float x, float y, float z) {
  _mm256_zeroupper();
  return __builtin_fmaf(x, y, z);
}
double fma(double x, double y, double z) {
  _mm256_zeroupper();
  return __builtin_fma(x, y, z);
}
C
  preload=$work/fma.so
}

# boot RANK: runs a machine until it powers itself off.
boot() {
  local network=(-nic none) wire=addr.type=unix,addr.path=$work/wire server=on
  if [ "$hosts" = 2 ]; then
    if [ "$1" = 1 ]; then
      server=off
      for _ in $(seq 100); do [ -S "$work/wire" ] && break || sleep 0.1; done
    fi
    network=(-netdev "stream,id=wire,server=$server,$wire" -device "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:0$(($1 + 1))")
  fi
  LD_PRELOAD=$preload timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp "$cpus" -m "$memory" \
    -kernel "$image/boot/vmlinuz-$kernel" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1" \
    -display none -serial stdio -monitor none -no-reboot "${network[@]}" \
    -fsdev local,id=files,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=files,mount_tag=files \
    -fsdev "local,id=exchange,path=$work/host$1,security_model=none" -device virtio-9p-pci,fsdev=exchange,mount_tag=exchange \
    </dev/null 2>&1 || { [ $? != 124 ] || echo 124 >"$work/host$1/timed_out"; }
}

stop_all() {
  local job
  for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done
  rm -rf "$work"
}

parse_arguments "$@"
check_packages
fetch_kernel
work=$(mktemp -d)
trap stop_all EXIT
write_initrd
write_fma
set -m # each machine is a process group, which stop_all ends
for ((rank = 0; rank < hosts; rank++)); do
  write_guest_script "$rank"
  boot "$rank" | sed -u -e 's/\r//g' -e "s/^/[host $rank] /" &
done
wait

result=0
for ((rank = 0; rank < hosts; rank++)); do
  status=$(cat "$work/host$rank/status" 2>/dev/null || cat "$work/host$rank/timed_out" 2>/dev/null || echo 125)
  [ "$result" != 0 ] || result=$status
  [ -z "$out" ] || { mkdir -p "$out/host$rank" && cp -r "$work/host$rank/out/." "$out/host$rank/"; }
done
[ "$result" != 124 ] || echo "softroce.sh: stopped after $limit s; give it more with --timeout" >&2
exit "$result"
