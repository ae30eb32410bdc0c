package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

// A network is the proxies between processes, people and the database. They are those of a process
// of toxiproxy, which hangs at times when something becomes right or wrong with a way in the moment
// that its connections end: then it is killed, and started anew.
type network struct {
	bin   string
	hangs time.Duration // how long the process may take to answer
	said  func(format string, args ...any)

	mu      sync.Mutex // held while the process is asked for something
	api     string
	process *exec.Cmd
	ways    []*way
}

// newNetwork starts the process. By itself it waits for 5 s at times, for a connection that does
// not take what is sent.
func newNetwork(bin string, said func(string, ...any)) (*network, error) {
	n := &network{bin: bin, hangs: 15 * time.Second, said: said}
	return n, n.start()
}

// start starts the process, with the ways that there are.
func (n *network) start() (err error) {
	if n.api, err = freeAddr(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(n.api)
	if err != nil {
		return err
	}
	n.process = exec.Command(n.bin, "-host", host, "-port", port)
	n.process.Env = []string{"LOG_LEVEL=disabled"}
	if err := n.process.Start(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			n.end()
		}
	}()
	if err := n.answers(); err != nil {
		return err
	}
	for _, w := range n.ways {
		if err := n.make(w); err != nil {
			return err
		}
	}
	return nil
}

// answers waits until the process does.
func (n *network) answers() error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	for {
		r, err := http.Get("http://" + n.api + "/version")
		if err == nil {
			return r.Body.Close()
		}
		if !pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("toxiproxy does not answer: %w", err)
		}
	}
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
}

func (n *network) end() {
	n.process.Process.Kill() //nolint:errcheck // it has ended by itself, perhaps
	n.process.Wait()         //nolint:errcheck // as above
}

// ask has the process do something. If it hangs, all ways are made anew, and nothing is wrong with
// them.
func (n *network) ask(what func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	killed := make(chan struct{})
	hung := time.AfterFunc(n.hangs, func() {
		defer close(killed)
		n.end()
	})
	err := what()
	if hung.Stop() {
		return err
	}
	<-killed
	n.said("toxiproxy hung: its connections are cut")
	return n.start()
}

// A way leads from an address of its own to another one.
type way struct {
	network  *network
	name     string
	addr, to string
	proxy    *toxiproxy.Proxy
	toxics   atomic.Int64 // how many there were
}

// open opens a way to an address.
func (n *network) open(name, to string) (*way, error) {
	w := &way{network: n, name: name, addr: "127.0.0.1:0", to: to}
	err := n.ask(func() error {
		if err := n.make(w); err != nil {
			return err
		}
		n.ways = append(n.ways, w)
		return nil
	})
	return w, err
}

func (n *network) make(w *way) (err error) {
	if w.proxy, err = toxiproxy.NewClient(n.api).CreateProxy(w.name, w.addr, w.to); err != nil {
		return fmt.Errorf("proxy %s: %w", w.name, err)
	}
	w.addr = w.proxy.Listen
	return nil
}

// A toxic is something that is wrong with a way, in one direction.
type toxic struct {
	kind, stream string
	attributes   toxiproxy.Attributes
}

// troubles are what can be wrong with a way.
var troubles = map[string][]toxic{
	"slow": {
		{"latency", "downstream", toxiproxy.Attributes{"latency": 150, "jitter": 100}},
		{"bandwidth", "upstream", toxiproxy.Attributes{"rate": 40}},
	},
	"reset": {{"reset_peer", "downstream", toxiproxy.Attributes{"timeout": 20}}},
	// What is sent is swallowed, and connections stay open.
	"deaf": {{"timeout", "upstream", toxiproxy.Attributes{"timeout": 0}}}, // requests do not arrive
	// Answers do not: what they tell of is done.
	"mute": {{"timeout", "downstream", toxiproxy.Attributes{"timeout": 0}}},
	"black_hole": {
		{"timeout", "upstream", toxiproxy.Attributes{"timeout": 0}},
		{"timeout", "downstream", toxiproxy.Attributes{"timeout": 0}},
	},
}

// trouble makes something wrong with a way until ctx ends.
func (w *way) trouble(ctx context.Context, what string) error {
	for _, t := range troubles[what] {
		name := fmt.Sprintf("%s-%s-%d", what, t.stream, w.toxics.Add(1)) // the same may come twice at once
		err := w.network.ask(func() error {
			_, err := w.proxy.AddToxic(name, t.kind, t.stream, 1, t.attributes)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s on the way %s: %w", what, w.name, err)
		}
		defer w.network.ask(func() error { return w.proxy.RemoveToxic(name) }) //nolint:errcheck // it may be gone
	}
	<-ctx.Done()
	return nil
}

// cut closes all connections of a way, and takes no new ones until ctx ends.
func (w *way) cut(ctx context.Context) error {
	if err := w.network.ask(func() error { return w.proxy.Disable() }); err != nil {
		return fmt.Errorf("cut the way %s: %w", w.name, err)
	}
	<-ctx.Done()
	return w.network.ask(func() error { return w.proxy.Enable() })
}

// freeAddr returns an address that nobody listens at. Its port is none that the system gives to
// connections, for who is to listen there may not be up for a while.
func freeAddr() (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", err
}
