package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/job"
)

func cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel JOB",
		Short: "End a job",
		Long: `Cancel ends a job and returns when nothing of it runs any more. While a process runs jobs in the folder, that process
is asked to do it; otherwise this command does it.

` + jobRule,
		Example: "  pawl cancel slow",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			r, err := openReader(ctx, cmd)
			if err != nil {
				return err
			}
			defer r.close()
			j, err := r.lookup(ctx, args[0])
			if err != nil {
				return err
			}
			asked := j.ID
			n, err := openNode(ctx, r.dir, nodeOptions{only: []job.ID{asked}})
			switch {
			case job.KindOf(err) == job.Locked:
				j, err = askToCancel(ctx, r.dir, asked)
			case err == nil:
				defer n.close()
				j, err = n.cancelHere(ctx, asked)
			}
			if err != nil && ctx.Err() != nil || err == nil && !j.State.Terminal() {
				fmt.Fprintf(cmd.OutOrStdout(), "job %s: cancel is asked for; the process that runs jobs in folder %s carries it out\n", asked, r.dir)
				return exit(exitLeft)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "job %s (%s): %s\n", j.Name, j.ID, j.State)
			return nil
		},
	}
}

// cancelHere cancels a job in this process, which runs no other.
func (n *node) cancelHere(ctx context.Context, id job.ID) (job.Job, error) {
	answers, err := n.Cancel(ctx, id)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return job.Job{}, err
	}
	// What its program has been doing since the last process died is found out and ended.
	running, stop := context.WithCancel(ctx)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(running)
		giveUp()
	}()
	j, err := n.Wait(waiting, id)
	stop()
	if broke := <-ended; broke != nil {
		return j, broke
	}
	return j, err
}

// socketName is the socket in a data folder on which the process that runs jobs there can be asked.
const socketName = "socket"

// socketIn returns a name of the socket in a folder, valid until close. The name of a socket has 107 bytes at most and
// the folder's may be longer, so it is reached through a descriptor of the folder.
func socketIn(dir string) (name string, close func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketName), f.Close, nil
}

// dial connects to the process that runs jobs in a folder.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	name, release, err := socketIn(dir)
	if err != nil {
		return nil, err
	}
	defer release() //nolint:errcheck // it was only read
	return (&net.Dialer{}).DialContext(ctx, "unix", name)
}

// listen lets other commands on the folder ask this process.
func (n *node) listen(ctx context.Context) (stop func(), err error) {
	name, release, err := socketIn(n.dir)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, errors.Join(err, release())
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/{id}/cancel", n.serveCancel)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer release() //nolint:errcheck // it was only read
		srv.Serve(l)    //nolint:errcheck // it ends with Close
	}()
	return func() {
		// Whoever asked is answered before this process goes.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second) // a program gets 10 s to end
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		<-done
	}, nil
}

// serveCancel cancels a job and answers it once it has ended.
func (n *node) serveCancel(w http.ResponseWriter, req *http.Request) {
	id, err := job.ParseID(req.PathValue("id"))
	var j job.Job
	if err == nil {
		answers, wishErr := n.Cancel(req.Context(), id)
		if err = wishErr; err == nil {
			err = answers[0].Err
		}
	}
	if err == nil {
		if j, err = n.Wait(req.Context(), id); err != nil && req.Context().Err() != nil {
			j, err = n.Job(context.WithoutCancel(req.Context()), id) // this process is stopping; the wish stands
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(statusOf(job.KindOf(err)))
		json.NewEncoder(w).Encode(refusal{Kind: job.KindOf(err), Detail: err.Error()}) //nolint:errcheck // the client has gone
		return
	}
	json.NewEncoder(w).Encode(j) //nolint:errcheck // the client has gone
}

// A refusal is an error on the socket.
type refusal struct {
	Kind   job.ErrorKind `json:"kind"`
	Detail string        `json:"detail"`
}

func statusOf(k job.ErrorKind) int {
	switch k {
	case job.Invalid:
		return http.StatusUnprocessableEntity
	case job.NotFound:
		return http.StatusNotFound
	case job.Conflict:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// askToCancel asks the process that has the folder.
func askToCancel(ctx context.Context, dir string, id job.ID) (j job.Job, err error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, dir) },
	}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pawl/v1/jobs/"+id.String()+"/cancel", nil)
	if err != nil {
		return j, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return j, job.Errorf(job.Locked, "folder %s is in use by a process that does not answer: %w; stop it, then cancel again", dir, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return j, err
	}
	if resp.StatusCode != http.StatusOK {
		var r refusal
		if err := json.Unmarshal(b, &r); err != nil {
			return j, fmt.Errorf("answer of the process that has the folder: %s", resp.Status)
		}
		return j, job.Errorf(r.Kind, "%s", r.Detail)
	}
	return j, json.Unmarshal(b, &j)
}
