package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/pawl-jobs/pawl/internal/yamltree"
	"github.com/pawl-jobs/pawl/job"
)

// parse reads a file in YAML. Each value knows its line.
func parse(name string, content []byte) (layer, error) {
	tokens, err := yamltree.Tokens(content)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r := &reader{name: name, layer: layer{}}
	for _, doc := range f.Docs {
		if doc.Body != nil {
			r.section(doc.Body, "")
		}
	}
	return r.layer, errors.Join(r.faults...)
}

// A reader walks through the tree of a file.
type reader struct {
	name   string
	layer  layer
	faults []error
}

func (r *reader) fault(n ast.Node, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s: "+format, append([]any{r.at(n)}, args...)...))
}

func (r *reader) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", r.name, n.GetToken().Position.Line)
}

// section reads the map of a section, whose key is prefix.
func (r *reader) section(n ast.Node, prefix string) {
	entries, ok := entriesOf(n)
	if !ok {
		r.fault(n, "write settings here, each as \"name: value\"")
	}
	for _, e := range entries {
		key := prefix + e.Key.GetToken().Value
		s := byName(keyOf, key)
		switch {
		case s != nil && r.layer[key].From != "":
			r.fault(e.Key, "%s is there twice", key)
		case s != nil && s.programs():
			if text, ok := r.lists(e.Value); ok {
				r.layer[key] = value{text, r.at(e.Key)}
			}
		case s != nil:
			if text, ok := r.text(e.Value); ok {
				r.layer[key] = value{text, r.at(e.Key)}
			}
		case isSection(key):
			r.section(e.Value, key+".")
		default:
			r.fault(e.Key, "%s is no setting%s", key, meant(job.Nearest(key, names(keyOf)...)))
		}
	}
}

// entriesOf returns the entries of a map, or of nothing.
func entriesOf(n ast.Node) (entries []*ast.MappingValueNode, ok bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case *ast.NullNode, *ast.CommentGroupNode:
		return nil, true
	}
	return nil, false
}

func isSection(key string) bool {
	for i := range Settings {
		if strings.HasPrefix(Settings[i].Key, key+".") {
			return true
		}
	}
	return false
}

// lists is a map of lists of scalars, as JSON.
func (r *reader) lists(n ast.Node) (string, bool) {
	entries, ok := entriesOf(n)
	if !ok {
		r.fault(n, "write programs here, each as \"name: [program, argument]\"")
		return "", false
	}
	all := map[string][]string{}
	for _, e := range entries {
		name, words := e.Key.GetToken().Value, []ast.Node{e.Value}
		if list, is := e.Value.(*ast.SequenceNode); is {
			words = list.Values
		}
		if _, twice := all[name]; twice {
			r.fault(e.Key, "%s is there twice", name)
			return "", false
		}
		all[name] = []string{}
		for _, w := range words {
			text, ok := r.text(w)
			if !ok {
				return "", false
			}
			all[name] = append(all[name], text)
		}
	}
	return Programs(all).String(), true
}

// text is a scalar, or a list of scalars, as other sources write it.
func (r *reader) text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.NullNode:
		return "", true
	case *ast.SequenceNode:
		var parts []string
		for _, v := range n.Values {
			part, ok := r.text(v)
			if !ok {
				return "", false
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ","), true
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), true
	case ast.ScalarNode:
		return n.GetToken().Value, true
	}
	r.fault(n, "write a plain value here")
	return "", false
}
