package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/app/trial"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/remedy"
	"github.com/pawl-jobs/pawl/internal/sshconfig"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// maxSystemCheck bounds the check of a system.
const maxSystemCheck = 3 * time.Minute

// checkSystem tries all that jobs need of a system, by a connection of its own; see
// [service.Config.CheckSystem].
func (n *Node) checkSystem(ctx context.Context, doc *job.System) (job.SystemCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSystemCheck)
	defer cancel()
	c := checking{doc: doc, SystemCheck: job.SystemCheck{System: doc.Name, Steps: []job.CheckStep{}}}
	switch {
	case !doc.Apart():
		c.local(ctx, n.App.Local())
	case !n.far.reaches(doc):
		return c.SystemCheck, job.Errorf(job.Unavailable, "system %s is reached from machine %s alone, and this "+
			"is machine %s: run `pawl systems check %[1]s` there; `pawl workers -o wide` lists the machines",
			doc.Name, doc.Host.From, n.far.machine)
	default:
		if err := c.remote(ctx, n.far); err != nil {
			return c.SystemCheck, err
		}
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return c.SystemCheck, err
	}
	c.Finish()
	return c.SystemCheck, nil
}

// A checking is a check of one system.
type checking struct {
	job.SystemCheck
	doc *job.System
}

// local checks the machine of the service.
func (c *checking) local(ctx context.Context, sys *app.System) {
	c.here()
	c.shell(ctx, sys.Host)
	c.try(ctx, sys, path.Dir(sys.Work))
}

// here notes what the machine of the service needs not.
func (c *checking) here() {
	c.Skip("it is the machine of the service", job.CheckName, job.CheckConnect, job.CheckHostKey, job.CheckLogin,
		job.CheckSFTP)
}

// remote checks a machine that ssh reaches, in the way of a job: the first request dials, and the
// code of its error says how far it came.
func (c *checking) remote(ctx context.Context, s *systems) error {
	h, err := s.dials(s.tenant, c.doc)
	if err != nil {
		return err
	}
	defer h.Close()
	if c.doc.Host.Kind != job.HostSSH {
		c.here()
	} else if !c.name(ctx) {
		return nil
	}
	if !c.shell(ctx, h) {
		return nil
	}
	s.retry(s.tenant, c.doc.Watch(s.machine)) // who watches it may have been refused a moment ago
	if c.doc.Host.Kind == job.HostSSH {
		// A file of /proc is there whatever the account may write.
		if _, err := h.Files().Stat(ctx, "/proc"); err != nil {
			c.fail(job.CheckSFTP, err)
			return nil
		}
		c.OK(job.CheckSFTP, "files can be reached")
	}
	y := &system{doc: *c.doc, host: h, own: s.own(c.doc)}
	sys, err := y.prepare(ctx, c.doc.Watch(s.machine), s.log)
	if err != nil {
		c.fail(job.CheckWork, err)
		return nil
	}
	c.try(ctx, sys, path.Dir(sys.Work))
	return nil
}

// name looks up the host that is dialed first.
func (c *checking) name(ctx context.Context) bool {
	at := c.doc.Host.Address
	if c.doc.Host.Via == job.ViaOpenSSH {
		c.Skip("the ssh program does it", job.CheckName, job.CheckConnect, job.CheckHostKey)
		return true
	}
	if len(c.doc.Host.Jump) > 0 {
		at = c.doc.Host.Jump[0].Address
	}
	if _, err := netip.ParseAddr(at); err == nil {
		c.OK(job.CheckName, at+" is an address")
		return true
	}
	found, err := net.DefaultResolver.LookupHost(ctx, at)
	if err != nil {
		c.fail(job.CheckName, &host.Trouble{Code: job.HostUnknown, Err: err})
		return false
	}
	c.OK(job.CheckName, at+" is "+strings.Join(found, ", "))
	return true
}

// reaching are the steps of reaching a machine, with the codes of their failures.
var reaching = []struct {
	step  string
	codes []job.Code
}{
	{job.CheckName, []job.Code{job.HostUnknown}},
	{job.CheckConnect, []job.Code{job.HostRefused, job.ConnectionTimeout, job.HostUnreachable}},
	{job.CheckHostKey, []job.Code{job.HostKeyUnknown, job.HostKeyChanged}},
	{job.CheckLogin, []job.Code{job.AuthenticationFailed, job.FirstAuthenticationFailed, job.LoginRequired}},
	{job.CheckShell, nil}, // all others
	{job.CheckTools, []job.Code{job.ToolsMissing}},
}

// shell makes the first request, which reaches the machine.
func (c *checking) shell(ctx context.Context, h host.Host) bool {
	env, err := h.Environ(ctx)
	failed := job.CheckShell
	if t, ok := errors.AsType[*host.Trouble](err); ok {
		for _, r := range reaching {
			if slices.Contains(r.codes, t.Code) {
				failed = r.step
			}
		}
	}
	value := func(name string) string {
		i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if i < 0 {
			return "unknown"
		}
		return env[i][len(name)+1:]
	}
	at := &c.doc.Host
	for _, r := range reaching {
		if slices.ContainsFunc(c.Steps, func(s job.CheckStep) bool { return s.Step == r.step }) {
			continue
		}
		if err != nil && r.step == failed {
			c.fail(r.step, err)
			return false
		}
		switch r.step {
		case job.CheckConnect:
			c.OK(r.step, way(at)+" takes connections")
		case job.CheckHostKey:
			c.OK(r.step, trusted(at))
		case job.CheckLogin:
			said := "as " + at.User
			if at.Via == job.ViaOpenSSH {
				said = "a person is logged in"
			}
			c.OK(r.step, said)
		case job.CheckShell:
			c.OK(r.step, fmt.Sprintf("/bin/sh answers; the login shell is %s, the home folder %s", value("SHELL"),
				value("HOME")))
		case job.CheckTools:
			c.OK(r.step, "all that Pawl needs is there")
		}
	}
	return true
}

// way names the address of a host, and those on the way to it.
func way(h *job.Host) string {
	said := fmt.Sprintf("%s, port %d,", h.Address, h.Port)
	for _, hop := range slices.Backward(h.Jump) {
		said += fmt.Sprintf(" through %s, port %d,", hop.Address, hop.Port)
	}
	return strings.TrimSuffix(said, ",")
}

// trusted says which keys a host has proven one of.
func trusted(h *job.Host) string {
	var prints []string
	for _, k := range h.HostKeys {
		prints = append(prints, sshconfig.Fingerprint(k))
	}
	return strings.Join(prints, " or ") + " is trusted"
}

// try checks all from the work folder on.
func (c *checking) try(ctx context.Context, sys *app.System, root string) {
	try := trial.Trial{
		System: sys, Root: root, Check: &c.SystemCheck, Wait: c.doc.CheckWait(), Resources: c.doc.Least(),
		Remedy: func(step string, code job.Code) string { return remedy.Of(c.doc, step, code) },
		Runner: func(ctx context.Context, spool, past string) (runner.Runner, error) {
			return backends.runners[c.doc.Starts()](ctx, sys.Host, spool, past, QuietLog)
		},
	}
	try.Run(ctx)
}

// fail notes that a step failed.
func (c *checking) fail(step string, err error) {
	code := trial.CodeOf(err)
	c.Fail(step, code, err.Error(), remedy.Of(c.doc, step, code))
}
