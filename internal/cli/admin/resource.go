package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/schedule"
	"github.com/pawl-jobs/pawl/service"
)

// A resourceKind is a kind of document that commands apply, get, delete, enable and disable.
type resourceKind struct {
	kind, plural string
	example      string    // a name, for help
	deleting     string    // what it means to delete one
	switching    [2]string // what it means to enable and to disable it
	columns      []string

	check func(doc json.RawMessage) (name string, err error)
	// apply returns what became of the document, such as "made"
	apply   func(ctx context.Context, at *target.Target, name string, doc json.RawMessage, dryRun bool) (string, error)
	list    list[resource]
	get     func(ctx context.Context, at *target.Target, name string) (resource, error)
	remove  func(ctx context.Context, at *target.Target, name string) error
	disable func(ctx context.Context, at *target.Target, name string, disabled bool) error
}

// A resource is a document as commands print it.
type resource struct {
	name        string
	disabled    bool
	description string
	cells       []string // in the order of the kind's columns
	version     int64
	updated     time.Time
	doc         json.RawMessage // as pawl apply takes it
}

// resourceKinds are those that there are.
var resourceKinds = []*resourceKind{
	kindOf(resourceKind{
		kind: job.KindQueue, plural: "queues", example: "night", columns: []string{"MOST WAITING"},
		deleting: "Delete removes the document of a queue. A queue that has jobs which have not ended is kept; " +
			"the default queue is always there.",
		switching: [2]string{"take new jobs again", "take no new jobs"},
	}, job.ParseQueue, (*client.Client).Queues, func(q *job.Queue) resource {
		most := "-"
		if q.MaxWaiting > 0 {
			most = fmt.Sprint(q.MaxWaiting)
		}
		return resource{name: q.Name, disabled: q.Disabled, description: q.Description, cells: []string{most}}
	}),
	kindOf(resourceKind{
		kind: job.KindSystem, plural: "systems", example: "lab", columns: []string{"HOST"},
		deleting: "Delete removes the document of a system. A system on which a job has not ended is kept; disable " +
			"it, and it launches nothing. Jobs that need it for an input or for their results wait until it is " +
			"there again. The system local is always there.",
		switching: [2]string{"launch programs again", "launch no programs: their jobs wait"},
	}, job.ParseSystem, (*client.Client).Systems, func(s *job.System) resource {
		return resource{name: s.Name, disabled: s.Disabled, description: s.Description, cells: []string{hostOf(s)}}
	}),
	kindOf(resourceKind{
		kind: kinds.Document, plural: "kinds", example: "thumbnail", columns: []string{"QUEUE", "TIMEOUT", "SLOTS"},
		deleting: "Delete removes the document of a kind of task. Its jobs stay as they are. A program that declares the " +
			"kind makes it again when it starts.",
		switching: [2]string{"take new jobs again", "take no new jobs"},
	}, kinds.Parse, (*client.Client).Kinds, func(k *kinds.Kind) resource {
		set := func(text, none string) string { return term.OrDash(strings.TrimPrefix(text, none)) }
		cells := []string{term.OrDash(k.Queue), set(k.Timeout.String(), "0s"), set(fmt.Sprint(k.Slots), "0")}
		return resource{name: k.Name, disabled: k.Disabled, description: k.Description, cells: cells}
	}),
	kindOf(resourceKind{
		kind: job.KindPolicy, plural: "policies", example: "patient", columns: []string{"TESTS", "WAITS"},
		deleting:  "Delete removes the document of a policy. Jobs that name it wait as the condition has it by default.",
		switching: [2]string{"count again", "count for nothing, as if they were not there"},
	}, job.ParsePolicy, (*client.Client).Policies, func(p *job.RecoveryPolicy) resource {
		return resource{
			name: p.Name, disabled: p.Disabled, description: p.Description,
			cells: []string{term.Stages(p.Stages), term.KeptFor(job.Duration(p.Policy().Wait()))},
		}
	}),
	kindOf(resourceKind{
		kind: job.KindSchedule, plural: "schedules", example: "weekly", columns: []string{"WHEN", "NEXT"},
		deleting: "Delete removes the document of a schedule, which submits nothing more. The jobs that it " +
			"submitted stay.",
		switching: [2]string{"submit jobs again", "submit no jobs"},
	}, schedule.Parse, (*client.Client).Schedules, func(s *job.Schedule) resource {
		return resource{name: s.Name, disabled: s.Disabled, description: s.Description, cells: []string{whenOf(s)}}
	}),
	kindOf(resourceKind{
		kind: job.KindRetention, plural: "retentions", example: job.DefaultRetention, columns: retentionColumns(),
		deleting:  "Delete removes the document of the retention. Without it all jobs are kept.",
		switching: [2]string{"remove jobs again", "remove no jobs"},
	}, job.ParseRetention, (*client.Client).Retentions, func(r *job.Retention) resource {
		out := resource{name: r.Name, disabled: r.Disabled, description: r.Description}
		for _, s := range job.Ends {
			out.cells = append(out.cells, term.KeptFor(r.Keep[s]))
		}
		return out
	}),
}

// hostOf says on which machine the programs of a system run.
func hostOf(s *job.System) string {
	if s.Host.Kind == job.HostSSH {
		return s.Host.Kind + " " + s.Host.Address
	}
	return s.Host.Kind
}

// retentionColumns has a column for each state in which jobs end.
func retentionColumns() (columns []string) {
	for _, s := range job.Ends {
		columns = append(columns, string(s))
	}
	return columns
}

// kindOf completes k for documents of type T.
func kindOf[T any](k resourceKind, parse func([]byte) (T, error), of func(*client.Client) client.Resources[T],
	row func(*T) resource,
) *resourceKind {
	print := func(r service.Resource[T]) resource {
		out := row(&r.Doc)
		out.version, out.updated = r.Version, r.Updated
		if k.kind == job.KindSchedule {
			next := "-"
			if !r.Next.IsZero() {
				next = r.Next.Local().Format(time.DateTime)
			}
			out.cells = append(out.cells, next)
			if r.Trouble != "" {
				out.description = "it cannot submit its jobs: " + r.Trouble
			}
		}
		doc, _ := job.Encode(r.Doc) // it was decoded a moment ago
		// the kind comes first, for people
		out.doc = json.RawMessage(`{"kind":"` + k.kind + `",` + strings.TrimPrefix(string(doc), "{"))
		return out
	}
	k.check = func(doc json.RawMessage) (string, error) {
		v, err := parse(doc)
		return row(&v).name, err
	}
	k.apply = func(ctx context.Context, at *target.Target, name string, doc json.RawMessage, dryRun bool) (string, error) {
		become := "made"
		if at != nil {
			was, err := of(at.Client).Resource(ctx, name)
			switch {
			case err == nil:
				now, wrong := parse(doc)
				if become = "replaced"; wrong == nil && reflect.DeepEqual(now, was.Doc) {
					return "unchanged", nil
				}
			case job.KindOf(err) != job.NotFound:
				return "", err
			}
		}
		if dryRun {
			return "would be " + become, nil
		}
		_, created, err := of(at.Client).Apply(ctx, name, doc, service.AnyVersion)
		if created {
			become = "made" // what is there unmade, such as the system local
		}
		return become, err
	}
	k.list = list[resource]{
		ask: func(ctx context.Context, at *target.Target) (found []resource, err error) {
			all, err := of(at.Client).List(ctx)
			for _, r := range all {
				found = append(found, print(r))
			}
			return found, err
		},
		name: func(r *resource) string { return r.name },
		document: func(all []resource) any {
			docs := term.Documents{} // of no documents too it is a list
			for _, r := range all {
				docs = append(docs, r.doc)
			}
			return docs
		},
		table:    k.print,
		wide:     true,
		argument: func(r *resource) cobra.Completion { return cobra.CompletionWithDesc(r.name, r.description) },
	}
	k.get = func(ctx context.Context, at *target.Target, name string) (resource, error) {
		r, err := of(at.Client).Resource(ctx, name)
		return print(r), err
	}
	k.remove = func(ctx context.Context, at *target.Target, name string) error {
		return of(at.Client).Delete(ctx, name, service.AnyVersion)
	}
	k.disable = func(ctx context.Context, at *target.Target, name string, disabled bool) error {
		_, err := of(at.Client).Disable(ctx, name, disabled, service.AnyVersion)
		return err
	}
	return &k
}

func getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show queues, systems, kinds, schedules and other documents",
		Long: `Get prints queues, systems, kinds of task, schedules (jobs on a clock), policies (how blocked jobs wait)
or retentions (for how long jobs are kept), or one of them. With -o yaml or -o json it prints documents that pawl apply
takes. (For jobs there are pawl list and pawl show.)`,
		Example: `  pawl get queues
  pawl get system local -o yaml
  pawl get retention default`,
		Args: term.NoSubject,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, k := range resourceKinds {
		cmd.AddCommand(k.list.by(&cobra.Command{
			Use:     k.plural,
			Short:   "List the " + k.plural,
			Example: "  pawl get " + k.plural + "\n  pawl get " + k.plural + " -o wide",
			Args:    cobra.NoArgs,
		}), k.showing())
	}
	return cmd
}

// showing is the command that shows one document of a kind.
func (k *resourceKind) showing() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   k.kind + " NAME",
		Short: "Show one " + k.kind,
		Example: "  pawl get " + k.kind + " " + k.example + "\n  pawl get " + k.kind + " " + k.example +
			" -o yaml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: k.list.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				r, err := k.get(ctx, at, args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return f.Print(out, r.doc, []string{r.name}, func() error { return k.print(out, []resource{r}, f == term.AsWide) })
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsWide, term.AsJSON, term.AsYAML, term.AsName)
	return cmd
}

// print prints a table of resources.
func (k *resourceKind) print(out io.Writer, all []resource, wide bool) error {
	columns := []term.Column{{Title: "NAME", Least: 12}, {Title: "STATE"}}
	for _, name := range k.columns {
		columns = append(columns, term.Column{Title: name, Least: 8})
	}
	if wide {
		columns = append(columns, term.Titles("VERSION", "UPDATED")...)
	}
	t := term.NewTable(out, wide,
		append(columns, term.Column{Title: "DESCRIPTION", Least: 12, Spare: 1})...)
	for _, r := range all {
		state := "enabled"
		if r.disabled {
			state = "disabled"
		}
		cells := []any{r.name, state}
		for _, c := range r.cells {
			cells = append(cells, c)
		}
		if wide {
			updated := "-"
			if !r.updated.IsZero() {
				updated = r.updated.Local().Format(time.DateTime)
			}
			cells = append(cells, r.version, updated)
		}
		t.Row(append(cells, term.OrDash(r.description))...)
	}
	return t.Flush()
}

// switches says what becomes of one that is disabled, or enabled.
func (k *resourceKind) switches(disabled bool) string {
	if disabled {
		return k.switching[1]
	}
	return k.switching[0]
}

func enableCommand() *cobra.Command {
	return switchCommand("enable", "Let queues, systems, kinds, schedules and other documents go on",
		`Enable takes back what pawl disable did. Jobs that wait for a system go on one after the other, at
the rate of releases: it is tested at once whether they may.`, false)
}

func disableCommand() *cobra.Command {
	return switchCommand("disable", "Stop queues, systems, kinds, schedules and other documents",
		`Disable stops a queue or a kind from taking new jobs; those that are there go on. A system takes jobs
all the same, and launches none of their programs: jobs that are under way are BLOCKED until it is
enabled, all others wait in the line of the system, and what runs goes on; see pawl recovery list,
and pawl show JOB. A schedule submits nothing. A policy that is disabled is as if it were not there.
While the retention is disabled no job is removed.`, true)
}

func switchCommand(name, short, long string, disabled bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: "  pawl " + name + " queue night",
		Args:    term.NoSubject,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, k := range resourceKinds {
		one := k.switchedBy(name, name+"d", disabled)
		one.Use, one.Example = k.kind+" NAME...", "  pawl "+name+" "+k.kind+" "+k.example
		cmd.AddCommand(one)
	}
	return cmd
}

// switchedBy is a command of that name that disables documents of a kind, or enables them.
func (k *resourceKind) switchedBy(name, done string, disabled bool) *cobra.Command {
	return k.each(&cobra.Command{
		Use: name + " NAME...", Short: "Let " + k.plural + " " + k.switches(disabled),
		Example: "  pawl " + k.plural + " " + name + " " + k.example,
	}, done, func(ctx context.Context, at *target.Target, name string) error {
		return k.disable(ctx, at, name, disabled)
	})
}
