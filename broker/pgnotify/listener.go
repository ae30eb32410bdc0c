package pgnotify

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-jobs/pawl/job"
)

const (
	connectTimeout = 10 * time.Second
	hangUpTimeout  = time.Second
	fetched        = 64 // rows in one statement
)

// keepAlive finds a server that is gone without a word in half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// A listener hears the other processes. Its one loop owns the connection, and lends it to calls.
type listener struct {
	hub     *hub
	cfg     *pgx.ConnConfig
	before  func(context.Context, *pgx.ConnConfig) error // changes cfg for each connection; nil: nothing does
	channel string
	own     string // the name of this process's sender
	fetch   string // a statement
	log     *slog.Logger

	calls chan call // taken while there is a connection
	done  chan struct{}
	inbox []heard // notifications that were read and not passed on yet; owned by the holder of the connection

	quiet quiet // owned by the holder of the connection

	mu   sync.Mutex
	down error // guarded by mu: why there is no connection
}

// heard is a notification, and the process of the server that sent it for its client.
type heard struct {
	client  uint32
	payload string
}

// A call borrows the connection.
type call struct {
	lent chan *pgx.Conn // closed if it was lost at that moment
	back chan struct{}  // closed when it is given back
}

func newListener(cfg Config, conn *pgx.ConnConfig, h *hub, own string) *listener {
	l := &listener{
		hub: h, cfg: conn, channel: channel(cfg.Schema), own: own, log: cfg.Log,
		fetch: `SELECT id::text, content FROM ` + pgx.Identifier{cfg.Schema, "messages"}.Sanitize() +
			` WHERE id = ANY($1::text[]::uuid[])`,
		calls: make(chan call), done: make(chan struct{}),
		quiet: quiet{schema: cfg.Schema, clock: time.Now},
	}
	if cfg.Like != nil {
		l.before = cfg.Like.BeforeConnect
	}
	maps.Copy(conn.RuntimeParams, cfg.Params)
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "pawl listener"
	}
	return l
}

// hook has a connection hear, and find out that its server is gone. Of what the program has set for
// the connections of its pool, only OnNotification makes room.
func (l *listener) hook(conn *pgx.ConnConfig) {
	conn.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if n.Channel == l.channel {
			l.inbox = append(l.inbox, heard{n.PID, n.Payload})
		}
	}
	theirs := conn.AfterNetConnect
	conn.AfterNetConnect = func(ctx context.Context, cfg *pgconn.Config, c net.Conn) (net.Conn, error) {
		if err := stayAlive(c); err != nil || theirs == nil {
			return c, err
		}
		return theirs(ctx, cfg, c)
	}
}

// stayAlive sets [keepAlive] on a connection, also below TLS.
func stayAlive(c net.Conn) error {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok {
		return stayAlive(outer.NetConn())
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return tcp.SetKeepAliveConfig(keepAlive)
	}
	return nil
}

// run listens until ctx ends, first on conn.
func (l *listener) run(ctx context.Context, conn *pgx.Conn) {
	defer close(l.done)
	for conn != nil {
		err := l.serve(ctx, conn)
		hangUp(conn)
		if conn = l.again(ctx, err); conn != nil {
			l.hub.missed()
		}
	}
}

// again connects until it succeeds. It returns nil when ctx ends.
func (l *listener) again(ctx context.Context, err error) *pgx.Conn {
	for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, lastRetry) {
		l.lost(err)
		l.log.Warn("not listening for wake-ups; connecting", "in", wait, "error", err)
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return nil
		}
		var conn *pgx.Conn
		if conn, err = l.connect(ctx); err == nil {
			l.log.Info("listening for wake-ups again")
			l.lost(nil)
			return conn
		}
	}
	return nil
}

// connect connects and listens.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg := l.cfg.Copy()
	if l.before != nil {
		if err := l.before(ctx, cfg); err != nil {
			return nil, fault(err)
		}
	}
	l.hook(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fault(err)
	}
	l.inbox = nil
	var pid uint32
	_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize())
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	}
	if err == nil {
		err = l.quiet.listen(ctx, conn, l.hub.wanted())
	}
	if err != nil {
		hangUp(conn)
		return nil, fault(err)
	}
	if pid != conn.PgConn().PID() {
		l.log.Warn("the listener is connected to a pooler; unless that keeps a connection for each session, no " +
			"wake-up of another process arrives: give it an address of PostgreSQL itself")
	}
	return conn, nil
}

// hangUp closes a connection. Its error does not matter: a broken connection is closed already.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), hangUpTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// serve tells what is heard on conn, and lends it, until it breaks or ctx ends.
func (l *listener) serve(ctx context.Context, conn *pgx.Conn) error {
	for {
		inbox := l.inbox
		l.inbox = nil
		if err := l.hear(ctx, conn, inbox); err != nil {
			return err
		}
		news, err := l.quiet.step(ctx, conn, l.hub.wanted())
		if err != nil {
			return err
		}
		if news {
			l.hub.look()
		}
		c, err := l.wait(ctx, conn)
		switch {
		case err != nil && c.lent != nil:
			l.lost(err)
			close(c.lent)
		case c.lent != nil:
			c.lent <- conn
			<-c.back
			err = sound(conn)
		}
		if err != nil {
			return err
		}
	}
}

// wait waits until a notification was read, or a call, which it returns, asks for the connection.
func (l *listener) wait(ctx context.Context, conn *pgx.Conn) (call, error) {
	if len(l.inbox) > 0 { // it was read while rows were fetched or the connection was lent
		select {
		case c := <-l.calls:
			return c, nil
		default:
			return call{}, nil
		}
	}
	waiting, stop := context.WithCancel(ctx)
	if next, ok := l.quiet.due(); ok {
		waiting, stop = context.WithDeadline(ctx, next)
	}
	asked := make(chan call, 1)
	go func() {
		defer close(asked)
		select {
		case c := <-l.calls:
			asked <- c
			stop()
		case <-l.hub.begun:
			stop()
		case <-waiting.Done():
		}
	}()
	// What was read of a notification when the wait is interrupted is kept by the connection.
	err := conn.PgConn().WaitForNotification(waiting)
	if waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		err = nil
	}
	stop()
	return <-asked, err
}

// sound is an error if a call left the connection unfit for listening. In a transaction it would
// hear nothing, and keep the server from forgetting notifications.
func sound(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return errors.New("the connection was lost in a call")
	case conn.PgConn().IsBusy():
		return errors.New("a call left a result of the listener's connection unread")
	case conn.PgConn().TxStatus() != 'I':
		return errors.New("a call left the listener's connection in a transaction")
	}
	return nil
}

func (l *listener) do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	c := call{lent: make(chan *pgx.Conn), back: make(chan struct{})}
	select {
	case l.calls <- c:
	case <-ctx.Done():
		return l.unavailable(context.Cause(ctx))
	case <-l.done:
		return errClosed
	}
	conn, ok := <-c.lent
	if !ok {
		return l.unavailable(nil)
	}
	defer close(c.back)
	return f(ctx, conn)
}

// lost notes why there is no connection; nil: there is one.
func (l *listener) lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = err
}

func (l *listener) unavailable(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return job.Errorf(job.Unavailable, "wait for the connection that listens: %w", errors.Join(err, l.down))
}

// hear tells the receivers of this process what notifications say, but for its own.
func (l *listener) hear(ctx context.Context, conn *pgx.Conn, inbox []heard) error {
	var where []job.QueueKind
	var messages []notice
	for _, h := range inbox {
		n, ok := parse(h.payload)
		if n.sender == inSQL {
			l.quiet.heard(h.client)
		}
		switch {
		case !ok:
			l.log.Debug("a notification is not understood", "payload", h.payload)
		case n.sender == l.own:
		case n.word == queueKindWord:
			where = append(where, n.queueKind)
		case l.hub.heard(n.topic):
			messages = append(messages, n)
		}
	}
	l.hub.announce(where)
	for some := range slices.Chunk(messages, fetched) {
		if err := l.deliver(ctx, conn, some); err != nil {
			return err
		}
	}
	return nil
}

// deliver delivers messages in their order.
func (l *listener) deliver(ctx context.Context, conn *pgx.Conn, messages []notice) error {
	var ids []string
	for _, n := range messages {
		if n.word == rowWord {
			ids = append(ids, n.id.String())
		}
	}
	contents := map[string][]byte{}
	if len(ids) > 0 {
		err := l.read(ctx, conn, ids, contents)
		if conn.IsClosed() {
			return err
		}
		if err != nil {
			l.log.Error("large messages are lost: the table messages cannot be read", "messages", len(ids), "error",
				err)
		}
	}
	for _, n := range messages {
		content, ok := n.content, true
		if n.word == rowWord {
			content, ok = contents[n.id.String()]
		}
		if ok {
			l.hub.deliver(n.topic, content)
		} else {
			l.hub.lost(n.topic) // it was removed, or did not survive a crash
		}
	}
	return nil
}

// read reads the contents of rows, as many as there are.
func (l *listener) read(ctx context.Context, conn *pgx.Conn, ids []string, contents map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	rows, err := conn.Query(ctx, l.fetch, ids)
	if err != nil {
		return err
	}
	var id string
	var content []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &content}, func() error {
		contents[id] = slices.Clone(content)
		return nil
	})
	return err
}
