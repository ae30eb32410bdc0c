package script

// Stats reads the stat files of all processes, after a line with the number of the newest and those
// of all. So many names as most machines have processes fit into the arguments of one program.
const Stats = `(cd /proc && read -r one five fifteen runs last <loadavg && set -- [0-9]* && echo "$last $*" &&
if [ $# -lt 10000 ]; then
	files=
	for p; do files="$files $p/stat"; done
	exec "$pawl_head" -v -c 1024 $files
else
	printf '%s/stat\n' "$@" | "$pawl_xargs" "$pawl_head" -v -c 1024
fi) 2>/dev/null </dev/null; ` + Ran

// Look reads processes in /proc: those with a number in a list (%[1]s) and those with one above
// another (%[2]d), of an account (%[3]s), and some files besides (%[4]s). A process with a number
// far above the newest got it before the numbers began anew: it is only read if the list names it.
// The newest come first, for they are the first to end. Then it awaits so many more (%[5]d), each
// at the number that the next process gets, and reads them as they start. It expects the tools of
// the shell of a host.
const Look = `(cd /proc && read -r one five fifteen runs last <loadavg &&
one() {
	[ -O "$1" ] || { [ %[3]s = 0 ] && [ -d "$1" ]; } || return
	s= n=; read -r s <"$1/stat"
	while read -r a b c d e f; do case "$b $c" in "file locks") n=$e; break; esac; done <"$1/limits"
}
later() { [ "$1" -gt %[2]d ] && [ "$1" -le "$top" ]; }
new= files= dead=" " top=$((last + 1000)) &&
for p in [0-9]*; do
	later "$p" && s= && read -r s <"$p/stat" && case $s in *") Z "*)
		set -- ${s##*") "}
		[ "${18}" = 1 ] && dead="$dead$p " ;;
	esac
done
for p in %[1]s; do later "$p" || { [ -d "$p" ] && new="$new $p"; }; done
for p in [0-9]*; do
	later "$p" && case $dead in *" $p "*) ;; *) new="$p $new" ;; esac
done
echo "$last $new"
for p in $new; do
	files="$files $p/./stat $p/status $p/limits $p/environ $p/././stat"
	if one "$p"; then echo "$p $n $s"; elif ! [ -d "$p" ]; then echo "$p  "; fi
done
i=%[5]d
while [ "$i" -gt 0 ]; do
	i=$((i - 1)) t=1000 && read -r one five fifteen runs p <loadavg && p=$((p + 1))
	until [ -d "$p" ] || [ "$t" = 0 ]; do t=$((t - 1)); done
	[ "$t" != 0 ] && one "$p" && [ "$n" ] && echo "$p $n $s"
done
echo @
exec "$pawl_head" -v -c 8388608 %[4]s $files) 2>/dev/null </dev/null; ` + Ran
