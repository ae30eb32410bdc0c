package http

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a source, and the URL of a server that answers so.
func serve(t *testing.T, c Config, answer http.HandlerFunc) (*Source, string) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c.Rule = cmp.Or(c.Rule, egress.All)
	s := New(c)
	t.Cleanup(func() { s.Close() })
	return s, server.URL
}

func TestSize(t *testing.T) {
	const text = "0123456789"
	content := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   int64
	}{
		{"of the head", content, 10},
		{"of a part, where the server has no heads", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			content(w, r)
		}, 10},
		{"of a part, where the URL is signed for reading", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			content(w, r)
		}, 10},
		{"of all, where the server knows no parts", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusNotImplemented)
				return
			}
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, text)
		}, 10},
		{"of nothing, which has no parts", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}, 0},
		{"that is not told", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, at := serve(t, Config{}, tt.answer)
			if n, err := s.Stat(t.Context(), at+"/f?signed=1"); n != tt.want || err != nil {
				t.Errorf("%d, %v; want %d", n, err, tt.want)
			}
		})
	}
}

func TestFetch(t *testing.T) {
	text := strings.Repeat("0123456789", 100_000)
	s, at := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "signed=%2F%2Fa//b" {
			http.Redirect(w, r, "/x?signed=%2F%2Fa//b", http.StatusFound)
			return
		}
		io.WriteString(w, text)
	})
	to, n := fake.New(), 0
	c, err := files.Fetch(t.Context(), to, "/f", s, at+"/f", files.CopyOptions{Progress: func(more int) { n += more }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := files.ReadFile(t.Context(), to, "/f", 1<<20)
	if sum, sumErr := files.Digest(t.Context(), to, "/f"); string(got) != text || err != nil || sumErr != nil || c.SHA256 != sum || c.Size != int64(len(text)) || n != len(text) {
		t.Errorf("%d bytes of %d, %v, %v: %+v", len(got), n, err, sumErr, c)
	}
}

// What a server says for good, and what may clear.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		status int
		is     error         // what it is
		kind   job.ErrorKind // or of which kind
		code   job.Code      // or what blocks
	}{
		{status: 404, is: fs.ErrNotExist},
		{status: 410, is: fs.ErrNotExist},
		{status: 401, is: fs.ErrPermission},
		{status: 403, is: fs.ErrPermission},
		{status: 400, kind: job.Invalid},
		{status: 405, kind: job.Invalid},
		{status: 204, kind: job.Invalid},
		{status: 501, kind: job.Invalid},
		{status: 408, code: job.FilesUnavailable},
		{status: 429, code: job.FilesUnavailable},
		{status: 500, code: job.FilesUnavailable},
		{status: 503, code: job.FilesUnavailable}, // S3 answers so to have a client slow down
		{status: 599, code: job.FilesUnavailable},
	} {
		t.Run(fmt.Sprint(tt.status), func(t *testing.T) {
			s, at := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) })
			_, read := s.Open(t.Context(), at+"/data/f")
			_, looked := s.Stat(t.Context(), at+"/data/f")
			for _, err := range []error{read, looked} {
				b := job.Blocking(err)
				switch {
				case tt.code != "":
					want := &job.Block{Code: tt.code, Message: err.Error(), Tester: "http", Params: map[string]string{"url": at + "/"}}
					if diff := gocmp.Diff(want, b); diff != "" {
						t.Errorf("block (-want +got):\n%s", diff)
					}
				case b != nil, tt.is != nil && !errors.Is(err, tt.is), tt.kind != "" && job.KindOf(err) != tt.kind:
					t.Errorf("error %v", err)
				}
				if !strings.Contains(err.Error(), fmt.Sprint(tt.status)) && !errors.Is(tt.is, fs.ErrNotExist) {
					t.Errorf("it does not say what was answered: %v", err)
				}
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	usual := job.PolicyOf(job.FilesUnavailable)
	now := time.Now().UTC()
	for _, tt := range []struct {
		header, date string
		after        time.Duration
	}{
		{"", "", 0},
		{"soon", "", 0},
		{"-5", "", 0},
		{"5", "", 5 * time.Second},
		{"300", "", 5 * time.Minute},
		{"90000", "", time.Hour},
		{"99999999999999999999", "", 0},
		{now.Add(10 * time.Minute).Format(http.TimeFormat), now.Format(http.TimeFormat), 10 * time.Minute},
		{now.Add(-10 * time.Minute).Format(http.TimeFormat), now.Add(-20 * time.Minute).Format(http.TimeFormat), 10 * time.Minute}, // its clock is wrong
		{now.Add(-10 * time.Minute).Format(http.TimeFormat), now.Format(http.TimeFormat), 0},
	} {
		t.Run(tt.header, func(t *testing.T) {
			s, at := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tt.header)
				if tt.date != "" {
					w.Header().Set("Date", tt.date)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			_, err := s.Open(t.Context(), at+"/f")
			b := job.Blocking(err)
			if b == nil {
				t.Fatalf("error %v", err)
			}
			longer := tt.after // than the usual first test leaves it alone
			if longer <= usual.Every(0) {
				longer = 0
			}
			if time.Duration(b.After) != tt.after || len(b.Policy.Stages) > 0 || b.Wait() != usual.Wait()+longer {
				t.Errorf("not tested for %v, by the policy %+v, for %v", b.After, b.Policy, b.Wait())
			}
		})
	}
}

// A part of a file is never taken for the file.
func TestTransferThatBreaks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		answer http.HandlerFunc
		want   string
	}{
		{"in the middle", Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "012")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "the transfer broke off after 3 bytes of 10"},
		{"in the middle of what is not known", Config{}, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "012")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "the transfer broke off after 3 bytes"},
		{"by a halt", Config{Stall: 20 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "012")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "the transfer stood still for 20ms after 3 bytes"},
		{"in drops", Config{Stall: 200 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "0")
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}, ""},
		{"before it begins", Config{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the connection broke off before it answered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, at := serve(t, tt.config, tt.answer)
			to := fake.New()
			_, err := files.Fetch(t.Context(), to, "/f", s, at+"/f", files.CopyOptions{})
			b := job.Blocking(err)
			if b == nil || b.Code != job.TransferInterrupted || b.Tester != TesterHTTP || b.Params["url"] != at+"/" || !strings.HasSuffix(b.Message, tt.want) {
				t.Errorf("block %+v of error %v", b, err)
			}
			if _, err := to.Stat(t.Context(), "/f"); !errors.Is(err, fs.ErrNotExist) || len(to.Temporaries()) > 0 {
				t.Errorf("a part is left: %v, %q", err, to.Temporaries())
			}
		})
	}
}

// TestTooLarge takes files that are larger than they may be, by what the server says or by what it
// sends.
func TestTooLarge(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"as is told": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "11")
			io.WriteString(w, "01234567890")
		},
		"as is not told": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "0123")
				w.(http.Flusher).Flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, at := serve(t, Config{Most: 10}, answer)
			to := fake.New()
			_, err := files.Fetch(t.Context(), to, "/f", s, at+"/f", files.CopyOptions{})
			if job.KindOf(err) != job.Invalid || job.Blocking(err) != nil || !strings.Contains(err.Error(), "more than 10 bytes") {
				t.Errorf("error %v", err)
			}
			if _, err := to.Stat(t.Context(), "/f"); !errors.Is(err, fs.ErrNotExist) || len(to.Temporaries()) > 0 {
				t.Errorf("a part is left: %v, %q", err, to.Temporaries())
			}
		})
	}
}

func TestNoAnswerInTime(t *testing.T) {
	s, at := serve(t, Config{Header: 20 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := s.Open(t.Context(), at+"/f")
	if b := job.Blocking(err); b == nil || b.Code != job.ConnectionTimeout || b.Tester != TesterHTTP {
		t.Errorf("block %+v of error %v", b, err)
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Rule: egress.All}).Stat(t.Context(), "http://"+l.Addr().String()+"/f")
	want := &job.Block{
		Code: job.HostUnreachable, Message: "127.0.0.1:" + port + ": connect: connection refused",
		Tester: "tcp", Params: map[string]string{"host": "127.0.0.1", "port": port},
	}
	if diff := gocmp.Diff(want, job.Blocking(err)); diff != "" {
		t.Errorf("error %v, block (-want +got):\n%s", err, diff)
	}
}

// What the network says of a host that no test has.
func TestUnanswered(t *testing.T) {
	at, err := url.Parse("https://Data.example.org/f")
	if err != nil {
		t.Fatal(err)
	}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, tt := range []struct {
		name         string
		err          error
		code         job.Code // empty: it fails
		tester, port string
	}{
		{"a name that nobody has", dial(&net.DNSError{Err: "no such host", Name: at.Hostname(), IsNotFound: true}), job.HostUnreachable, TesterTCP, "443"},
		{"names that cannot be asked for", dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), job.ConnectionTimeout, TesterTCP, "443"},
		{"no way", dial(syscall.EHOSTUNREACH), job.HostUnreachable, TesterTCP, "443"},
		{"no connection in time", dial(context.DeadlineExceeded), job.ConnectionTimeout, TesterTCP, "443"},
		{"a connection that is cut", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, job.TransferInterrupted, TesterHTTP, ""},
		{"TLS is refused", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "", "", ""},
		{"an address that is closed to jobs", dial(job.Errorf(job.Invalid, "%w", egress.ErrRefused)), "", "", ""},
		{"anything else", errors.New("malformed"), "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := unanswered(t.Context(), at, &url.Error{Op: "Get", URL: at.String(), Err: tt.err})
			b := job.Blocking(err)
			switch {
			case tt.code == "":
				if b != nil || job.KindOf(err) != job.Invalid {
					t.Errorf("error %v", err)
				}
			case b == nil || b.Code != tt.code || b.Tester != tt.tester || b.Params["port"] != tt.port:
				t.Errorf("block %+v of %v", b, err)
			case b.Params["host"] != "data.example.org" && b.Params["url"] != "https://data.example.org/":
				t.Errorf("parameters %v", b.Params)
			}
		})
	}
}

func TestCertificateThatIsNotBelieved(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	s := New(Config{Rule: egress.All})
	defer s.Close()
	if _, err := s.Open(t.Context(), server.URL+"/f"); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v", err)
	}
}

func TestClosedToJobs(t *testing.T) {
	asked := false
	for rule, want := range map[egress.Rule]job.ErrorKind{egress.Public: job.Invalid, egress.None: job.Invalid} {
		s, at := serve(t, Config{Rule: rule}, func(http.ResponseWriter, *http.Request) { asked = true })
		if _, err := s.Open(t.Context(), at+"/f"); job.KindOf(err) != want || !strings.Contains(err.Error(), "http_inputs") || asked {
			t.Errorf("%s: error %v", rule, err)
		}
	}
}

func TestCanceled(t *testing.T) {
	s, at := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := s.Open(ctx, at+"/f")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel(stop)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if _, err := s.Open(ctx, at+"/f"); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}
