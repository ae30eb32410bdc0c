package testers

import (
	"context"
	"fmt"
	"net"

	"github.com/pawl-jobs/pawl/recovery"
)

// TCP makes a connection and closes it. Parameters: host and port.
type TCP struct{ Dial Dial }

// Test implements [recovery.Tester].
func (t TCP) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	host, port := q.Params["host"], q.Params["port"]
	if host == "" {
		return recovery.Answer{}, missing(recovery.TCP, "host")
	}
	if port == "" {
		return recovery.Answer{}, missing(recovery.TCP, "port")
	}
	address := net.JoinHostPort(host, port)
	conn, err := t.Dial.orUsual()(ctx, "tcp", address)
	if err != nil {
		return recovery.Answer{}, err
	}
	conn.Close()
	return recovery.Answer{Clear: true, Says: fmt.Sprintf("%s takes connections", address)}, nil
}
