package pgnotify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func kind(t *testing.T, err error, want job.ErrorKind) {
	t.Helper()
	if job.KindOf(err) != want || err == nil {
		t.Errorf("error %v of kind %s, want %s", err, job.KindOf(err), want)
	}
}

// listenerLost waits until b has found that it could have missed something, and checks that it says
// so.
func listenerLost(t *testing.T, b *pgnotify.Broker, lost <-chan struct{}) {
	t.Helper()
	<-lost
	if got := wait(t, b, line); !cmp.Equal(got, []job.QueueKind{line}) {
		t.Errorf("told %v, want %v, which was waited for before", got, line)
	}
}

// hears checks that what one tells two hears.
func hears(t *testing.T, one, two *pgnotify.Broker) {
	t.Helper()
	other := job.QueueKind{Queue: "other"}
	announce(t, one, other)
	wait(t, two, other)
	s := subscribe(t, two, "probe")
	publish(t, one, "probe", strings.Repeat("x", 5000))
	select {
	case m := <-s.Messages():
		if len(m) != 5000 {
			t.Errorf("received %d bytes", len(m))
		}
	case <-s.Lost():
		t.Error("a message is lost")
	}
}

// arrives waits until what waited at one has come to two: on many megabytes a slow machine may lose
// its connection once more, and then messages with it.
func arrives(t *testing.T, one, two *pgnotify.Broker) {
	t.Helper()
	s := subscribe(t, two, "last")
	for {
		publish(t, one, "last", "it came in the order in which it was told")
		select {
		case <-s.Messages():
			return
		case <-s.Lost():
		}
	}
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	one, two := pair(t, dsn)
	announce(t, two, line)
	wait(t, two, line)
	s := subscribe(t, two, "news")
	for range 3 {
		execute(t, dsn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'pawl listener' AND datname = current_database()`)
		listenerLost(t, two, s.Lost())
	}
	hears(t, one, two)
	hears(t, two, one)
}

func TestServerGone(t *testing.T) {
	t.Parallel()
	testenv.Postgres(t) // skips where there is none
	server, err := testenv.StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	one, two := pair(t, server.DSN("postgres"))
	pooled := open(t, pgnotify.Config{DSN: server.DSN("postgres"), Pool: pool(t, server.DSN("postgres"), nil)})
	announce(t, two, line)
	wait(t, two, line)
	s := subscribe(t, two, "news")

	server.Kill()
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return one.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) })
	}
	for ping() == nil { // a server that was killed may answer for a moment
	}
	for _, b := range []*pgnotify.Broker{one, pooled} {
		for n := range 5000 {
			l := job.QueueKind{Queue: fmt.Sprint(n % 100)}
			announce(t, b, l)
			publish(t, b, "news", "")
			wait(t, b, l) // within the process nothing is amiss
		}
		for range 16 {
			err = errors.Join(err, b.Publish(t.Context(), "news", make([]byte, 1<<20)))
		}
	}
	kind(t, err, job.Unavailable)    // memory has a bound
	kind(t, ping(), job.Unavailable) // there is no connection to be lent

	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	listenerLost(t, two, s.Lost())
	arrives(t, one, two)
	arrives(t, pooled, two)
	hears(t, one, two)
	hears(t, two, one)
	hears(t, pooled, two)
}

func TestDo(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	one, two := pair(t, dsn)
	announce(t, two, line)
	wait(t, two, line)
	lost := subscribe(t, two, "news").Lost()

	t.Run("it runs on the connection that listens", func(t *testing.T) {
		var channel string
		err := two.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "SELECT pg_listening_channels()").Scan(&channel)
		})
		if err != nil || channel != "pawl/pawl" {
			t.Errorf("listening on %q, error %v", channel, err)
		}
	})
	t.Run("what arrives meanwhile is not lost", func(t *testing.T) {
		const messages = 2000
		s := subscribe(t, two, "many")
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for ctx.Err() == nil {
					err := two.Do(ctx, func(_ context.Context, c *pgx.Conn) error {
						_, err := c.Exec(t.Context(), "SELECT pg_sleep(0.0005)")
						return err
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		for n := range messages {
			publish(t, one, "many", fmt.Sprint(n, strings.Repeat(".", n%3*1000)))
			if n%100 != 99 {
				continue
			}
			for k := n - 99; k <= n; k++ {
				var got int
				if _, err := fmt.Sscan(string(<-s.Messages()), &got); err != nil || got != k {
					t.Fatalf("received %d, want %d, error %v", got, k, err)
				}
			}
		}
		stop()
		callers.Wait()
	})
	t.Run("an error of f is answered", func(t *testing.T) {
		want := errors.New("no")
		if err := two.Do(t.Context(), func(context.Context, *pgx.Conn) error { return want }); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		hears(t, one, two)
	})
	for _, test := range []struct{ name, sql string }{
		{"a connection that breaks is made anew", "SELECT pg_terminate_backend(pg_backend_pid())"},
		{"a transaction that was left open is ended", "BEGIN"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := two.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
				_, err := c.Exec(ctx, test.sql)
				return err
			})
			if (err == nil) != (test.sql == "BEGIN") {
				t.Error(err)
			}
			listenerLost(t, two, lost)
			hears(t, one, two)
		})
	}
	t.Run("a result that was left unread is ended", func(t *testing.T) {
		err := two.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
			rows, err := c.Query(ctx, "SELECT generate_series(1, 10)")
			if rows.Next(); rows.Err() != nil {
				t.Error(rows.Err())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		listenerLost(t, two, lost)
		hears(t, one, two)
	})
	t.Run("a context that ends in a statement ends the connection", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for runs := false; !runs; { // on a slow machine it may be long until it does
				if err := one.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
					return c.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_stat_activity
						WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(600)'`).Scan(&runs)
				}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		err := two.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		listenerLost(t, two, lost)
		hears(t, one, two)
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	one, two := pair(t, dsn)
	for try := range 5 { // the sender may be anywhere
		b := open(t, pgnotify.Config{DSN: dsn})
		b.Part(time.Minute) // a slow machine takes longer than a second for all of them
		var lines []job.QueueKind
		for n := range 3000 { // more than go with one statement
			lines = append(lines, job.QueueKind{Queue: fmt.Sprint(n), Kind: fmt.Sprint(try)})
			announce(t, b, lines[n])
		}
		b.Close()
		b.Close()
		gather(t, two, lines...) // what was announced before is told
	}

	waiting := make(chan error)
	go func() {
		_, err := one.Wait(t.Context(), []job.QueueKind{line})
		waiting <- err
	}()
	one.Close()
	kind(t, <-waiting, job.Closed)
	kind(t, one.Announce(t.Context(), line), job.Closed)
	kind(t, one.Publish(t.Context(), "news", nil), job.Closed)
	kind(t, one.Do(t.Context(), func(context.Context, *pgx.Conn) error { return nil }), job.Closed)
	_, err := one.Subscribe(t.Context(), "news")
	kind(t, err, job.Closed)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	wrong, err := url.Parse(server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword("postgres", "wrong")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	for _, test := range []struct {
		name string
		cfg  pgnotify.Config
		want job.ErrorKind
	}{
		{"what is no DSN", pgnotify.Config{DSN: "postgres://%"}, job.Invalid},
		{"a wrong password", pgnotify.Config{DSN: wrong.String()}, job.Invalid},
		{"no such database", pgnotify.Config{DSN: server.DSN("nowhere")}, job.Invalid},
		{"nobody there", pgnotify.Config{DSN: "postgres://" + free.Addr().String()}, job.Unavailable},
		{"a schema that PostgreSQL would cut", pgnotify.Config{DSN: server.DSN("postgres"), Schema: strings.Repeat("s", 64)}, job.Invalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := pgnotify.Open(t.Context(), test.cfg)
			kind(t, err, test.want)
			if b != nil || strings.Contains(fmt.Sprint(err), "wrong") {
				t.Errorf("broker %v, error %v", b, err)
			}
		})
	}
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	one, two := pair(t, dsn)
	long := pgnotify.Config{DSN: dsn, Schema: strings.Repeat("S", 62) + `"`}
	create(t, dsn, long.Schema)
	other, another := open(t, long), open(t, long)
	announce(t, other, line)
	wait(t, another, line)
	hears(t, one, two) // so that an announcement of other's would have come
	hears(t, other, another)
	mark := job.QueueKind{Queue: "mark"}
	announce(t, one, mark)
	if got := wait(t, two, line, mark); !cmp.Equal(got, []job.QueueKind{mark}) {
		t.Errorf("told %v of another schema", got)
	}
}

func TestGarbage(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	one, two := pair(t, dsn)
	announce(t, two, line)
	wait(t, two, line)
	s := subscribe(t, two, "news")
	for _, payload := range []string{
		"", " ", "   ", "hello", "x.1 line red", "x.1 line red paint more", "x line red paint", "x.1 shout red paint",
		"x.1 line red %zz", "x.1 line %zz paint", "x.1 message news !", "x.1 message news %41", "x.1 row news 1",
		"x.1 row news 00000000-0000-0000-0000-00000000000g", strings.Repeat("x", 7999),
	} {
		execute(t, dsn, `SELECT pg_notify('pawl/pawl', '`+payload+`')`)
	}
	mark := job.QueueKind{Queue: "mark"}
	announce(t, one, mark)
	if got := wait(t, two, line, mark); !cmp.Equal(got, []job.QueueKind{mark}) {
		t.Errorf("told %v, want only %v", got, mark)
	}
	publish(t, one, "news", "mark")
	if got := <-s.Messages(); string(got) != "mark" {
		t.Errorf("received %q", got)
	}
	execute(t, dsn, `SELECT pg_notify('pawl/pawl', 'x.1 row news 00000000-0000-0000-0000-000000000001')`)
	<-s.Lost() // a row that is gone
}

func TestBounds(t *testing.T) {
	t.Parallel()
	one, two := pair(t, testenv.Postgres(t).Database(t))
	long := job.QueueKind{Queue: strings.Repeat("q", 8000)}
	mark := job.QueueKind{Queue: "mark"}
	kind(t, one.Announce(t.Context(), long, mark), job.Invalid)
	wait(t, two, mark) // the others are told
	wait(t, one, long) // as is this process
	kind(t, one.Publish(t.Context(), long.Queue, nil), job.Invalid)
	kind(t, one.Publish(t.Context(), "news", make([]byte, 16<<20+1)), job.Invalid)
	hears(t, one, two)
}

func TestRows(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	one, two := pair(t, dsn)
	execute(t, dsn, `INSERT INTO pawl.messages (id, content, at)
		SELECT gen_random_uuid(), '', now() - make_interval(secs => n) FROM generate_series(1, 120) AS n`)
	hears(t, one, two)
	if got := server.Psql(t, dsn, "-c", "SELECT count(*) FROM pawl.messages WHERE at < now() - interval '65 s'"); got != "0" {
		t.Errorf("%s rows are older than a minute", got)
	}
	if got := server.Psql(t, dsn, "-c", "SELECT count(*) FROM pawl.messages WHERE content = ''"); got == "0" {
		t.Error("rows younger than a minute are gone")
	}

	execute(t, dsn, "DROP TABLE pawl.messages")
	s := subscribe(t, two, "news")
	publish(t, one, "news", strings.Repeat("x", 5000))
	publish(t, one, "news", "small")
	if got := <-s.Messages(); string(got) != "small" {
		t.Errorf("received %.10q: what cannot be kept must not hold up the others", got)
	}
}

// statements is what a pool was asked to run, and when.
type statements struct {
	mu       sync.Mutex
	sql      []string
	at       []time.Time
	payloads int
	news     []time.Time // when a message was told
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql, s.at = append(s.sql, q.SQL), append(s.at, time.Now())
	if payloads, ok := q.Args[len(q.Args)-1].([]string); ok {
		s.payloads += len(payloads)
		if slices.ContainsFunc(payloads, func(p string) bool { return strings.Contains(p, " message ") }) {
			s.news = append(s.news, time.Now())
		}
	}
	return ctx
}

func (s *statements) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sql)
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestMerged(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	_, two := pair(t, dsn)
	var ran statements
	one := open(t, pgnotify.Config{DSN: dsn, Pool: pool(t, dsn, &ran)})
	for ran.len() < 20 {
		announce(t, one, line)
		publish(t, one, "news", "")
	}
	mark := job.QueueKind{Queue: "mark"}
	announce(t, one, mark)
	gather(t, two, line, mark)
	ran.mu.Lock()
	defer ran.mu.Unlock()
	if ran.payloads > 3*len(ran.sql) {
		t.Errorf("%d statements told %d notifications of two lines and a topic", len(ran.sql), ran.payloads)
	}
	for n, sql := range ran.sql {
		if !strings.Contains(sql, "pg_notify") {
			t.Errorf("ran %s", sql)
		}
		// No timer fires early.
		if n > 0 && ran.at[n].Sub(ran.at[n-1]) < 2*time.Millisecond {
			t.Errorf("a statement came %v after the one before it", ran.at[n].Sub(ran.at[n-1]))
		}
	}
	if len(ran.news) < 2 {
		t.Errorf("a topic was told of %d times", len(ran.news))
	}
	for n := range ran.news {
		if n > 0 && ran.news[n].Sub(ran.news[n-1]) < 20*time.Millisecond {
			t.Errorf("a topic was told of again after %v", ran.news[n].Sub(ran.news[n-1]))
		}
	}
}

// A proxy stands before a server.
type proxy struct {
	net.Listener
	to  string
	pid bool // changes the number of the server's process, as poolers do

	mu      sync.Mutex
	conns   []net.Conn
	deaf    chan struct{} // closed: what is sent over the connections so far goes nowhere
	refused chan struct{} // not nil: connections are closed, and one is sent for each
}

func newProxy(t *testing.T, to string, pid bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, pid: pid, deaf: make(chan struct{})}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			deaf, refused := p.deaf, p.refused
			p.mu.Unlock()
			if refused != nil {
				c.Close()
				refused <- struct{}{}
				continue
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			group.Go(func() { p.carry(s, c, deaf) })
			group.Go(func() { p.carry(c, s, deaf) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		group.Wait()
	})
	return p
}

func (p *proxy) carry(to io.WriteCloser, from io.Reader, deaf chan struct{}) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-deaf:
			continue
		default:
		}
		key := []byte("K\x00\x00\x00\x0c") // BackendKeyData
		if i := bytes.Index(buf[:n], key); p.pid && i >= 0 {
			buf[i+len(key)] ^= 1
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// silence lets the connections so far be, but nothing gets through them any more.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.deaf)
	p.deaf = make(chan struct{})
}

// refuse cuts the connections, and tells of each that is refused until allow is called.
func (p *proxy) refuse() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.refused = make(chan struct{}, 1000)
	return p.refused
}

func (p *proxy) allow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = nil
}

func (p *proxy) dsn(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr().String()
	return u.String()
}

func TestSilence(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	one, _ := pair(t, dsn)
	p := newProxy(t, server.Addr(), false)
	two := open(t, pgnotify.Config{DSN: p.dsn(t, dsn)})
	announce(t, two, line)
	wait(t, two, line)
	lost := subscribe(t, two, "news").Lost()
	p.silence()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := two.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) }); err == nil {
		t.Error("a call over a dead connection succeeded")
	}
	listenerLost(t, two, lost)
	hears(t, one, two)
}

func TestSentAgain(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	_, two := pair(t, dsn)
	p := newProxy(t, server.Addr(), false)
	one := open(t, pgnotify.Config{DSN: dsn, Pool: pool(t, p.dsn(t, dsn), nil)})
	hears(t, one, two)
	s := subscribe(t, two, "news")
	refused := p.refuse()
	var lines []job.QueueKind
	for n := range 100 {
		l := job.QueueKind{Queue: fmt.Sprint(n)}
		lines = append(lines, l)
		announce(t, one, l)
		publish(t, one, "news", fmt.Sprint(n, strings.Repeat(".", n%2*2000)))
		if n == 0 || n == 50 {
			<-refused
		}
	}
	p.allow()
	gather(t, two, lines...)
	for n := range 100 {
		var got int
		if _, err := fmt.Sscan(string(<-s.Messages()), &got); err != nil || got != n {
			t.Fatalf("received %d, want %d, error %v", got, n, err)
		}
	}
}

func TestPooler(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	for _, pooler := range []bool{false, true} {
		var log bytes.Buffer
		p := newProxy(t, server.Addr(), pooler)
		open(t, pgnotify.Config{DSN: p.dsn(t, dsn), Log: slog.New(slog.NewTextHandler(&log, nil))}).Close()
		if got := strings.Contains(log.String(), "pooler"); got != pooler {
			t.Errorf("with a pooler %v: warned %v", pooler, got)
		}
	}
}
