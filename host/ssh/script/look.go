package script

// Look reads processes in /proc: those with a number in a list (%[1]s) and those with one above
// another (%[2]d), of an account (%[3]s), and some files besides (%[4]s). It expects the tools of
// the shell of a host.
const Look = `(cd /proc && read -r one five fifteen runs last <loadavg &&
new= files= dead=" " &&
for p in [0-9]*; do
	[ "$p" -gt %[2]d ] && s= && read -r s <"$p/stat" && case $s in *") Z "*)
		set -- ${s##*") "}
		[ "${18}" = 1 ] && dead="$dead$p " ;;
	esac
done
for p in %[1]s; do [ "$p" -le %[2]d ] && [ -d "$p" ] && new="$new $p"; done
for p in [0-9]*; do
	[ "$p" -gt %[2]d ] && case $dead in *" $p "*) ;; *) new="$new $p" ;; esac
done
echo "$last $new"
for p in $new; do
	files="$files $p/./stat $p/status $p/limits $p/environ $p/././stat"
	if [ -O "$p" ] || { [ %[3]s = 0 ] && [ -d "$p" ]; }; then
		s= n=; read -r s <"$p/stat"
		while read -r a b c d e f; do case "$b $c" in "file locks") n=$e; break; esac; done <"$p/limits"
		echo "$p $n $s"
	fi
done
echo @
"$pawl_head" -v -c 8388608 %[4]s $files) 2>/dev/null </dev/null; true`
