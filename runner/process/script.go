package process

import (
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// take are the lines of a wrapper that take the launch. First it says who takes it, under a name
// that is written once (-C), even if somebody runs this script again. Then it makes room for the
// end: without it nothing is started. Then it makes the name that decides: with -C only one can.
// What that holds is for people, and comes later: there may be room for a name, and for no more.
const take = `set -C
printf '%s\n' "$me" >.pawl/take.$at.$token || exit
makeroom || exit
true >.pawl/taken.$at || {
	read -r taken <.pawl/taken.$at
	echo "not started: taken.$at holds $taken"
	rm -f "$room"
	exit 1
}
set +C
printf '%s\n' "$me" 2>/dev/null >>.pawl/taken.$at
`

// script returns the wrapper of a launch, or an error of kind Invalid. telling are lines by which
// the wrapper tells that it is there, before it takes the launch.
func (r *Runner) script(k runner.Key, p runner.Plan, token string, booted time.Time, locks uint64, telling string,
) (string, error) {
	tail, err := spool.Tail(p, "")
	if err != nil {
		return "", err
	}
	own := fmt.Sprintf("self=$0\nname=%s\nbooted=%d.%03d\n", runner.EndName(k, 0), booted.Unix(), booted.Nanosecond()/1e6)
	return r.Head(k, token, locks) + own + telling + spool.MakeRoom + take + spool.Stay + tail, nil
}
