package spool

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/runner"
)

// A Seen is a message in the spool.
type Seen struct {
	Content []byte
	Gone    bool // its script was, before the message was read
}

// maxPeek is how many messages a request reads, or removes.
const maxPeek = 100

// peeking is a function that prints a message, and says whether its wrapper is gone. It starts no
// program. Of what is no message of a wrapper it prints a part at most.
const peeking = `ulimit -t 5
peek() { # number in the request, name
	[ -f "$2" ] || return
	is=here pid= stat=
	read -r taken token boot pid rest <"$2"
	case $pid:$rest in # half a line may have half a number
	:* | *: | *[!0-9]*:*) ;;
	*)
		[ -d "/proc/$pid" ] && read -r stat <"/proc/$pid/stat"
		case $stat in
		*") Z "* | *") X "*) is=gone ;;
		'') [ -d "/proc/$pid" ] || is=gone ;;
		esac
		;;
	esac
	echo "$nonce $1 $is"
	n=0 line=
	while [ $n -lt 64 ] && IFS= read -r line; do printf '%s\n' "$line"; n=$((n + 1)) line=; done <"$2"
	printf %s "$line"
}
`

// peek reads messages that were not told yet.
func (w *watch) peek(ctx context.Context, names []string) (map[string]*Seen, error) {
	return w.Peek(ctx, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, given := w.notified(name)
		return given
	}))
}

// Peek reads messages by the shell of the host, if it has one. What it does not return is to be
// read as a file, which tells why it cannot be.
func (s *Spool) Peek(ctx context.Context, names []string) (map[string]*Seen, error) {
	sh := s.Shell()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, _, err := runner.ParseEndName(name)
		return err != nil
	})
	if sh == nil || len(names) == 0 {
		return nil, nil
	}
	all := make(map[string]*Seen, len(names))
	for few := range slices.Chunk(names, maxPeek) {
		nonce := "\n" + rand.Text()
		script := fmt.Sprintf("cd %s || exit\nnonce='%s'\n", Quote(s.Dir), nonce) + peeking
		for i, name := range few {
			script += fmt.Sprintf("peek %d %s\n", i, Quote(name))
		}
		out, _, err := sh.Run(ctx, script+"echo \"$nonce\"", nil)
		if err != nil {
			return nil, err
		}
		parts := bytes.Split(out, []byte(nonce))
		for _, part := range parts[:len(parts)-1] { // what comes before the last one is whole
			head, content, _ := bytes.Cut(part, []byte("\n"))
			number, is, ok := strings.Cut(strings.TrimPrefix(string(head), " "), " ")
			i, err := strconv.Atoi(number)
			if ok && err == nil && i >= 0 && i < len(few) && len(content) <= runner.MaxEnd {
				all[few[i]] = &Seen{Content: content, Gone: is == "gone" && !s.Scheduled}
			}
		}
	}
	return all, nil
}
