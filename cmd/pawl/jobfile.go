package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/pawl-jobs/pawl/job"
)

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
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("holds a value that JSON cannot express: %w: write it as text", err)
	}
	return bytes.TrimSpace(doc.Bytes()), nil
}

func notYAML(err error) error { return fmt.Errorf("is not YAML: %s", strings.TrimSpace(err.Error())) }

// markNumbers makes an integer of each plain scalar that is a number in JSON: the parser has a place for the text of
// an integer only, and takes 1e3 for a string.
func markNumbers(tokens token.Tokens) {
	block := false
	for _, t := range tokens {
		switch t.Type {
		case token.LiteralType, token.FoldedType:
			block = true
			continue
		case token.CommentType:
			continue
		case token.StringType, token.FloatType, token.IntegerType:
			if !block && numberRE.MatchString(t.Value) {
				t.Type = token.IntegerType
			}
		}
		block = false
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
