package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/cli/systems"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

func applyCommand() *cobra.Command {
	var name string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make or replace queues, systems, schedules and other documents",
		Long: `Apply creates or replaces the documents that FILE holds: queues, systems, kinds of task, schedules (jobs on
a clock), policies (how blocked jobs wait) and the retention (how long jobs are kept after their end). FILE is
YAML or JSON, and may hold several documents, each with its kind: queue, system, kind, schedule, policy or
retention. All are checked before the first one is applied. A document that is the same already is unchanged. FILE - is standard
input. A system of kind ssh without host.from and host.keys gets the machine of the folder in
host.from. See pawl explain queue, system, kind, schedule, policy and retention for the fields; pawl get prints
documents as apply takes them.`,
		Example: `  pawl apply -f site.yaml --dry-run
  pawl apply -f site.yaml
  pawl get queues -o yaml | pawl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" {
				return term.Usage(errors.New("no file is named: give one with -f, or -f - for standard input"))
			}
			docs, err := readDocuments(name)
			if err != nil {
				return err
			}
			apply := func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				for _, doc := range docs {
					fields, err := doc.placed(cmd, at)
					become := ""
					if err == nil {
						become, err = doc.kind.apply(ctx, at, doc.name, fields, dryRun)
					}
					if err != nil {
						return fmt.Errorf("%s %s: %w", doc.kind.kind, doc.name, err)
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", doc.kind.kind, doc.name, become)
				}
				return nil
			}
			if !dryRun {
				return target.With(target.OpenWriting, apply)(cmd, args)
			}
			err = target.With(target.Open, apply)(cmd, args)
			if job.KindOf(err) == job.NotFound { // there is no folder yet, and none is made
				return apply(cmd.Context(), cmd, nil)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be made or replaced")
	cmd.Flags().StringVarP(&name, "file", "f", "", "the file; - for standard input")
	if err := cmd.MarkFlagFilename("file", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag is there
	}
	return cmd
}

// A document is a resource that a file describes.
type document struct {
	kind   *resourceKind
	name   string
	fields map[string]any // without its kind
	host   map[string]any // of a system that ssh reaches and that does not say from where; a part of fields
}

// placed returns the document as it is applied at a target; nil: none is there yet.
func (d *document) placed(cmd *cobra.Command, at *target.Target) (json.RawMessage, error) {
	if d.host != nil && at != nil {
		machine, err := at.Machine(cmd)
		if err != nil {
			return nil, err
		}
		d.host["from"] = machine
	}
	doc, err := job.Encode(d.fields)
	if err == nil {
		_, err = d.kind.check(doc)
	}
	return doc, err
}

// unplaced returns the host of a system that ssh reaches and that does not say from where; nil: it
// is no such system.
func unplaced(kind string, fields map[string]any) map[string]any {
	host, _ := fields["host"].(map[string]any)
	if kind != job.KindSystem || host["kind"] != job.HostSSH || host["from"] != nil || host["keys"] != nil {
		return nil
	}
	return host
}

// readDocuments reads the documents of a file. Its error, a [term.UsageError], names everything
// that is wrong.
func readDocuments(name string) ([]document, error) {
	_, content, err := jobfile.ReadFile(name)
	if err != nil {
		return nil, term.Usagef("file: %w", err)
	}
	wrong := func(err error) ([]document, error) {
		return nil, term.Usagef("file %s %w", name, err)
	}
	if len(content) > jobfile.MaxFile {
		return wrong(fmt.Errorf("is larger than %d bytes: make several files of it", jobfile.MaxFile))
	}
	if len(strings.TrimSpace(string(content))) == 0 {
		return wrong(errors.New("is empty: give a document such as kind: queue, name: night"))
	}
	raw, err := jobfile.YAMLDocuments(content)
	if err != nil {
		return wrong(err)
	}
	var list []json.RawMessage
	if len(raw) == 1 && json.Unmarshal(raw[0], &list) == nil {
		raw = list // as pawl get -o json prints many
	}
	var docs []document
	var faults jobfile.Faults
	for i, doc := range raw {
		label := ""
		if len(raw) > 1 {
			label = fmt.Sprintf("document %d of %d", i+1, len(raw))
		}
		d, err := readDocument(doc)
		if err != nil {
			faults.Add(label, err)
		}
		docs = append(docs, d)
	}
	if faults.Lines != nil {
		return nil, term.Usagef("file %s:\n%w", name, &faults)
	}
	return docs, nil
}

func readDocument(doc json.RawMessage) (document, error) {
	fields, err := job.ParseObject(doc)
	if err != nil {
		return document{}, job.Errorf(job.Invalid,
			"it is not an object: write fields such as kind: queue and name: night")
	}
	var names []string
	for _, k := range resourceKinds {
		names = append(names, k.kind)
		if fields["kind"] != k.kind {
			continue
		}
		delete(fields, "kind")
		d := document{kind: k, fields: fields, host: unplaced(k.kind, fields)}
		if d.host != nil {
			d.host["from"] = systems.Here
		}
		doc, err := job.Encode(fields)
		if err != nil {
			return d, err
		}
		d.name, err = k.check(doc)
		return d, err
	}
	p := job.Problem{Path: "kind", What: "is missing", Remedy: "give one of " + strings.Join(names, ", ")}
	if given, ok := fields["kind"]; ok {
		p.Value, p.What = fmt.Sprint(given), "is unknown"
		if near := job.Nearest(p.Value, names...); near != "" {
			p.Remedy = "did you mean " + near + "?"
		}
	}
	return document{}, &job.SpecError{Problems: []job.Problem{p}}
}
