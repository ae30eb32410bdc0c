#!/bin/sh
# Starts an SSH server of its own on the loopback address, makes a system of it, and runs jobs there.
# It needs sshd (Debian: apt-get install openssh-server) and ./pawl (make build), and leaves nothing.
set -eu
cd "$(dirname "$0")/../.."
pawl=${PAWL:-$PWD/pawl}
sshd=$(command -v sshd || echo /usr/sbin/sshd)
dir=$(mktemp -d)
export PAWL_DIR="$dir/pawl"
server='' run=''
trap 'kill -9 $run $server 2>/dev/null || true; rm -rf "$dir"' EXIT

say() { printf '\n== %s\n' "$*"; }

say "A private SSH server for $(id -un), on a free port"
ssh-keygen -q -t ed25519 -N '' -f "$dir/host"
ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
port=22022
until
	cat >"$dir/sshd_config" <<-CONFIG
		Port $port
		ListenAddress 127.0.0.1
		HostKey $dir/host
		PidFile none
		AuthorizedKeysFile $dir/key.pub
		StrictModes no
		UsePAM no
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		Subsystem sftp internal-sftp
	CONFIG
	"$sshd" -D -e -f "$dir/sshd_config" 2>"$dir/sshd.log" &
	server=$!
	until grep -q 'Server listening\|Cannot bind' "$dir/sshd.log"; do sleep 0.1; done
	grep -q 'Server listening' "$dir/sshd.log"
do port=$((port + 1)); done

say 'The system lab, from ~/.ssh/config: who does this by hand is shown the key, and asked'
cat >"$dir/config" <<CONFIG
Host lab
	HostName 127.0.0.1
	Port $port
	User $(id -un)
	IdentityFile $dir/key
CONFIG
mkdir "$PAWL_DIR"
"$pawl" systems add lab --ssh lab --ssh-config "$dir/config" --yes
"$pawl" get system lab -o yaml | sed "s|^work: .*|work: $dir/there|" | "$pawl" apply -f -

say 'The word count of examples/wordcount runs there'
sed 's/^name:/system: lab\nname:/' examples/wordcount/job.yaml >"$dir/job.yaml"
cp examples/wordcount/poem.txt "$dir"
"$pawl" run "$dir/job.yaml"

say 'The sweep of examples/pi: twenty jobs, four at once. In the middle pawl is killed (kill -9)'
"$pawl" limits set system/lab 4
sed 's/^defaults:/defaults:\n  system: lab/' examples/pi/jobs.yaml >"$dir/jobs.yaml"
"$pawl" run "$dir/jobs.yaml" >"$dir/first.log" 2>&1 &
run=$!
until "$pawl" list --state RUNNING -o name | grep -q .; do sleep 0.1; done
kill -9 $run
wait $run || true
run=''
"$pawl" list

say 'The same command goes on with them. No program is started twice'
"$pawl" run "$dir/jobs.yaml" | tail -n 1
for job in $("$pawl" list --label sweep=pi -o name); do "$pawl" output "$job" pi.txt; done |
	awk '{ sum += $2 } END { if (NR) printf "%d estimates, mean %.3f\n", NR, sum/NR }'
