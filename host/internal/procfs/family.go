package procfs

import (
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/host"
)

// Related returns a function that reports whether a process may be of a family, as far as its
// session and its limit of file locks tell. Each launch with a number has another one, and only
// root can shed it. A process that root started without that number, in another session, and that
// ends before it is read, is found by those that it started: look for them twice.
func Related(fs []host.Family) func(session int, locks uint64) bool {
	numbers, leaders, all := map[uint64]bool{}, map[int]bool{}, true
	for _, family := range fs {
		numbers[family.Locks], leaders[family.Leader.PID] = true, true
		all = all && family.Locks != 0
	}
	return func(session int, locks uint64) bool { return !all || numbers[locks] || leaders[session] }
}

// Numbers reads a line of numbers.
func Numbers(line string) (all []int, err error) {
	for word := range strings.FieldsSeq(line) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}
