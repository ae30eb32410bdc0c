package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run FILE",
		Short: "Run the job that a file describes, and see it to its end",
		Long: `Run submits the job that FILE describes (YAML or JSON), runs it, shows its states and the end of its log, and says
where its output is.

When this process is stopped or killed, the program goes on. The same command on the same, unchanged file then finds
the job and goes on with it instead of submitting another; once it has ended, the command submits it anew.

Exit codes: 0 FINISHED, 1 FAILED, 2 bad input, 3 CANCELED, 4 left unfinished, 5 Pawl itself could not go on.`,
		Example: `  pawl run examples/wordcount/job.yaml
  pawl run --dir /scratch/me/pawl job.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, key, err := readSpec(args[0])
			if err != nil {
				return err
			}
			dir, err := dataDir(cmd)
			if err != nil {
				return err
			}
			return runJob(cmd.Context(), cmd.OutOrStdout(), dir, spec, key)
		},
	}
}

// readSpec reads a job file. Relative paths in it become absolute: they are relative to its folder. key stands for
// the path and the bytes of the file.
func readSpec(name string) (spec job.Spec, key string, err error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return spec, "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return spec, "", &usageError{fmt.Errorf("job file: %w", err)}
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, job.MaxSpec+1))
	if err != nil {
		return spec, "", &usageError{fmt.Errorf("job file: %w", err)}
	}
	if len(content) > job.MaxSpec {
		return spec, "", &usageError{fmt.Errorf("job file %s is larger than %d bytes: pass large data as inputs", name, job.MaxSpec)}
	}
	doc, err := jsonOf(content)
	if err != nil {
		return spec, "", &usageError{fmt.Errorf("job file %s %w", name, err)}
	}
	if spec, err = job.ParseSpec(doc); err == nil {
		err = spec.Validate()
	}
	if err != nil {
		return spec, "", &usageError{fmt.Errorf("job file %s:\n%w", name, err)}
	}
	if spec.Kind != "" && spec.Kind != job.KindApp {
		return spec, "", &usageError{fmt.Errorf("job file %s: kind %s is a task: run tasks with the Go program that handles them", name, spec.Kind)}
	}
	base := filepath.Dir(path)
	for i, in := range spec.Inputs {
		spec.Inputs[i].From = absolute(base, in.From)
	}
	if spec.Archive != nil && spec.Archive.To != "" {
		spec.Archive.To = absolute(base, spec.Archive.To)
	}
	sum := sha256.Sum256(append([]byte(path+"\x00"), content...))
	return spec, "run:" + hex.EncodeToString(sum[:]), nil
}

// jsonOf returns the one document of a YAML file as JSON. Its errors go on from "job file NAME".
func jsonOf(content []byte) ([]byte, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	switch {
	case bytes.IndexByte(content, 0) >= 0:
		return nil, errors.New("has a NUL byte: save it as text, in UTF-8")
	case !utf8.Valid(content):
		return nil, errors.New("is not UTF-8: save it in that encoding")
	}
	tokens := lexer.Tokenize(string(content))
	markNumbers(tokens)
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, notYAML(err)
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if _, directive := d.Body.(*ast.DirectiveNode); d.Body != nil && !directive {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return nil, errors.New("is empty: give a command such as command: [wc, -w, in.txt]")
	case 1:
	default:
		return nil, fmt.Errorf("holds %d documents: give one job per file", len(bodies))
	}
	ast.Walk(exact{}, bodies[0])
	var v any
	if err := yaml.NodeToValue(bodies[0], &v); err != nil {
		return nil, notYAML(err)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("holds a value that JSON cannot express: %w: write it as text", err)
	}
	return doc, nil
}

func notYAML(err error) error { return fmt.Errorf("is not YAML: %s", strings.TrimSpace(err.Error())) }

// markNumbers makes an integer of each plain scalar that is a number in JSON: the parser has a place for the text of
// an integer only, and takes 1e3 for a string.
func markNumbers(tokens token.Tokens) {
	for _, t := range tokens {
		block := t.Prev != nil && (t.Prev.Type == token.LiteralType || t.Prev.Type == token.FoldedType)
		switch t.Type {
		case token.StringType, token.FloatType, token.IntegerType:
			if !block && numberRE.MatchString(t.Value) {
				t.Type = token.IntegerType
			}
		}
	}
}

// numberRE is the grammar of a number in JSON (RFC 8259, section 6).
var numberRE = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// exact leaves numbers as they are written: 1.10 is not 1.1, and long ones lose no digit.
type exact struct{}

func (e exact) Visit(n ast.Node) ast.Visitor {
	if i, ok := n.(*ast.IntegerNode); ok && numberRE.MatchString(i.Token.Value) {
		i.Value = json.Number(i.Token.Value)
	}
	return e
}

func absolute(base, p string) string {
	if filepath.IsAbs(p) || strings.Contains(p, "://") {
		return p
	}
	return filepath.Join(base, p)
}

// runJob submits the job, or finds it unfinished, and runs the service until it has ended.
func runJob(ctx context.Context, out io.Writer, dir string, spec job.Spec, key string) error {
	n, err := openNode(ctx, dir, nodeOptions{})
	if err != nil {
		return err
	}
	defer n.close()
	answers, err := n.Submit(ctx, pawl.Request{Spec: spec, Unique: []store.Unique{{Mode: job.UntilDone, Key: key}}})
	if err != nil {
		return err
	}
	id := answers[0].ID
	j, err := n.Job(ctx, id)
	if err != nil {
		return err
	}
	if answers[0].Existed {
		fmt.Fprintf(out, "job %s (%s) goes on: it is %s\n", j.Name, id, j.State)
	} else {
		fmt.Fprintf(out, "job %s (%s) submitted\n", j.Name, id)
	}
	if err := n.others(ctx, out, id); err != nil {
		return err
	}

	hangUp, err := n.listen(ctx)
	if err != nil {
		return fmt.Errorf("listen on the folder's socket: %w", err)
	}
	defer hangUp()

	// The service runs until the job has ended, and stops in good order in any case.
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(running) }()
	watching, unwatch := context.WithCancelCause(ctx)
	defer unwatch(nil)
	var broke error
	over := make(chan struct{})
	go func() {
		defer close(over)
		broke = <-ended
		unwatch(errors.New("the service stopped"))
	}()
	err = n.show(watching, out, id)
	stop()
	<-over
	if broke != nil {
		return broke
	}
	if j, err2 := n.Job(context.WithoutCancel(ctx), id); err2 == nil {
		return n.conclude(out, &j)
	} else if err == nil {
		err = err2
	}
	return err
}

// others says how many unfinished jobs besides id this process will run.
func (n *node) others(ctx context.Context, out io.Writer, id job.ID) error {
	counts, err := n.Count(ctx)
	if err != nil {
		return err
	}
	unfinished := -1
	for s, c := range counts {
		if !s.Terminal() {
			unfinished += c
		}
	}
	if unfinished > 0 {
		fmt.Fprintf(out, "this process also runs %d other unfinished job(s) of folder %s while it lasts; see pawl list\n", unfinished, n.dir)
	}
	return nil
}

// show prints the job's states as they come, each with the time spent in the one before, and its log as it grows.
func (n *node) show(ctx context.Context, out io.Writer, id job.ID) error {
	var last job.Event
	logs := newFollower(out)
	defer logs.close()
	for e, err := range n.Events(ctx, id, "") {
		if err != nil {
			return err
		}
		if last.N > 0 && e.State == last.State && e.Message == "" {
			last.Custody = e.Custody
			continue
		}
		if e.State == job.Running && last.State != job.Running {
			if j, err := n.Job(ctx, id); err == nil {
				if folder, _ := app.Places(&j); folder != "" {
					var r app.Resolved
					if json.Unmarshal(j.Resolved, &r) == nil {
						logs.follow(filepath.Join(folder, r.Stdout), filepath.Join(folder, r.Stderr))
					}
				}
			}
		}
		if e.State != job.Running && last.State == job.Running {
			logs.finish()
		}
		fmt.Fprintln(out, eventLine(e, last))
		last = e
	}
	return nil
}

// eventLine is one line of a job's story.
func eventLine(e, before job.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-17s", e.At.Local().Format("15:04:05.000"), e.State)
	if before.N > 0 {
		fmt.Fprintf(&b, "  after %s %s", spent(e.At.Sub(before.At)), before.State)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, "  %s", firstLine(e.Message))
	}
	return strings.TrimRight(b.String(), " ")
}

func spent(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if more {
		line += " …"
	}
	return line
}

// conclude says how the job stands, and makes the exit code of it.
func (n *node) conclude(out io.Writer, j *job.Job) error {
	folder, results := app.Places(j)
	switch j.State {
	case job.Finished:
		fmt.Fprintf(out, "FINISHED  output: %s\n", results)
		return nil
	case job.Failed:
		fmt.Fprintf(out, "FAILED  %s: %s\n", j.Code, j.Message)
		fmt.Fprintf(out, "what to do: %s\n", remedy(j.Code))
		if folder != "" {
			fmt.Fprintf(out, "folder: %s\n", folder)
		}
		return exit(exitFailed)
	case job.Canceled:
		fmt.Fprintf(out, "CANCELED  %s\n", j.Message)
		return exit(exitCanceled)
	}
	fmt.Fprintf(out, "%s  left as it is; the same command goes on with it\n", j.State)
	return exit(exitLeft)
}

func remedy(c job.Code) string {
	for _, i := range job.Codes {
		if i.Code == c {
			return i.Remedy
		}
	}
	return "see pawl history"
}

// A follower prints what is appended to files.
type follower struct {
	out  io.Writer
	stop chan struct{}
	done chan struct{}
}

func newFollower(out io.Writer) *follower { return &follower{out: out} }

// follow begins to print files as they grow. A file that is named twice is printed once.
func (f *follower) follow(names ...string) {
	f.finish()
	f.stop, f.done = make(chan struct{}), make(chan struct{})
	if names[0] == names[1] {
		names = names[:1]
	}
	go func() {
		defer close(f.done)
		read := make([]int64, len(names))
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for stopping := false; ; {
			for i, name := range names {
				read[i] += copyFrom(f.out, name, read[i])
			}
			if stopping {
				return
			}
			select {
			case <-tick.C:
			case <-f.stop:
				stopping = true
			}
		}
	}()
}

// finish prints the rest and stops.
func (f *follower) finish() {
	if f.stop != nil {
		close(f.stop)
		<-f.done
		f.stop = nil
	}
}

func (f *follower) close() { f.finish() }

// copyFrom prints whole lines of a file from an offset on, and returns how many bytes that were.
func copyFrom(out io.Writer, name string, offset int64) int64 {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	n, err := f.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) || n == 0 {
		return 0
	}
	end := bytes.LastIndexByte(b[:n], '\n') + 1
	if end == 0 && n == len(b) {
		end = n
	}
	for line := range bytes.Lines(b[:end]) {
		fmt.Fprintf(out, "  | %s\n", bytes.TrimRight(line, "\n"))
	}
	return int64(end)
}
