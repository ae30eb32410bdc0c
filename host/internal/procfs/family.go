package procfs

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/host"
)

// Related returns a function that reports whether a process may be of a family, as far as its
// session and its limit of file locks tell. Each launch with a number has another limit, and only
// root can shed it; one without a number has that of its account. A process that root started
// without the number, in another session, and that ends before it is read, is found by those that
// it started: look for them twice.
func Related(fs []host.Family, account uint64) func(session int, locks uint64) bool {
	numbers, leaders := map[uint64]bool{}, map[int]bool{}
	for _, family := range fs {
		numbers[cmp.Or(family.Locks, account)], leaders[family.Leader.PID] = true, true
	}
	return func(session int, locks uint64) bool { return numbers[locks] || leaders[session] }
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
