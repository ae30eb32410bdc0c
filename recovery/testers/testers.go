// Package testers has the testers of package recovery that reach out into the world: they make connections, ask servers, look at file systems and
// run programs. A process that is to test what they find out hands them to its service, see [All].
package testers

import (
	"fmt"

	"github.com/pawl-jobs/pawl/recovery"
)

// All returns the testers by name. Programs are those that a [Command] may run, by name: what starts each, and its arguments.
func All(programs map[string][]string) map[string]recovery.Tester {
	return map[string]recovery.Tester{
		recovery.TCP:     TCP{},
		recovery.HTTP:    HTTP{},
		recovery.Space:   Space{},
		recovery.Command: Command(programs),
	}
}

// missing is the error of a tester that was asked without a parameter that it needs.
func missing(tester, param string) error {
	return fmt.Errorf("tester %s: parameter %s is needed", tester, param)
}
