#!/usr/bin/env bash
# try builds the image with podman on a base of busybox alone, since no registry may be in reach, and sees that a job runs in
# it, that process 1 reaps what a program leaves, and that the container stops in good order. usage: deploy/try.sh PAWL
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pawl=$(realpath "$1")
T=$(mktemp -d)
P=(podman --root "$T/root" --runroot "$T/run" --runtime runc)
trap '"${P[@]}" rm -fat 0 >/dev/null 2>&1 || true; "${P[@]}" rmi -af >/dev/null 2>&1 || true; rm -rf "$T"' EXIT

mkdir -p "$T/base" "$T/image"
cp "$(command -v busybox)" "$T/base/busybox"
cat >"$T/base/Containerfile" <<'B'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
B
cp "$pawl" "$T/image/pawl"
"${P[@]}" build -q --isolation=chroot -t base "$T/base" >/dev/null
"${P[@]}" build -q --isolation=chroot --build-arg BASE=localhost/base -t pawl -f "$here/Containerfile" "$T/image" >/dev/null
"${P[@]}" run -d --name pawl --network=none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 localhost/pawl >/dev/null
for _ in $(seq 100); do "${P[@]}" logs pawl 2>&1 | grep -q 'msg=serving' && break; sleep 0.1; done
"${P[@]}" exec pawl /bin/sh -c 'printf "script: |\n  (setsid sleep 0.2 &)\n  echo hello from a container\n" >/data/j.yaml; pawl submit /data/j.yaml --wait'
sleep 1
"${P[@]}" exec pawl ps -o pid,ppid,stat,args
zombies=$("${P[@]}" exec pawl ps -o stat | grep -c '^Z' || true)
echo "zombies: $zombies"
"${P[@]}" stop -t 30 pawl >/dev/null
code=$("${P[@]}" inspect -f '{{.State.ExitCode}}' pawl)
echo "exit code: $code"
[[ $zombies == 0 && $code == 0 ]]
