// Package testers has the testers of package recovery that reach out into the world: they make
// connections, ask servers, look at file systems and run programs. A process that makes such tests
// hands them to its service: see [All].
package testers

import (
	"context"
	"fmt"
	"net"

	"github.com/pawl-jobs/pawl/recovery"
)

// A Dial makes a connection, as [net.Dialer.DialContext] does. Nil means that function.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

func (d Dial) orUsual() Dial {
	if d == nil {
		return (&net.Dialer{}).DialContext
	}
	return d
}

// All returns the testers by name. A [Command] may run the programs, which are given by name with
// their first arguments. Testers that go to servers connect with dial.
func All(programs map[string][]string, dial Dial) map[string]recovery.Tester {
	return map[string]recovery.Tester{
		recovery.TCP:     TCP{dial},
		recovery.HTTP:    HTTP{dial},
		recovery.Space:   Space{},
		recovery.Machine: Machine{},
		recovery.Command: Command(programs),
	}
}

// missing is the error of a tester that was asked without a parameter that it needs.
func missing(tester, param string) error {
	return fmt.Errorf("tester %s: parameter %s is needed", tester, param)
}
