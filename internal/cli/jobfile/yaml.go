package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/pawl-jobs/pawl/internal/yamltree"
	"github.com/pawl-jobs/pawl/job"
)

// YAMLDocuments returns the documents of a YAML file as JSON, at least one. Its errors go on from
// "file NAME".
func YAMLDocuments(content []byte) ([]json.RawMessage, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	switch {
	case bytes.IndexByte(content, 0) >= 0:
		return nil, errors.New("has a NUL byte: save it as text, in UTF-8")
	case !utf8.Valid(content):
		return nil, errors.New("is not UTF-8: save it in that encoding")
	}
	tokens, err := yamltree.Tokens(content)
	if err != nil {
		return nil, err
	}
	tokens = withoutEmpty(tokens)
	markNumbers(tokens)
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, notYAML(err)
	}
	if err := yamltree.Check(file); err != nil {
		return nil, err
	}
	var docs []json.RawMessage
	for _, d := range file.Docs {
		if _, directive := d.Body.(*ast.DirectiveNode); d.Body == nil || directive {
			continue
		}
		ast.Walk(exact{}, d.Body)
		var v any
		if err := yaml.NodeToValue(d.Body, &v); err != nil {
			return nil, notYAML(err)
		}
		doc, err := job.Encode(v)
		if err != nil {
			return nil, fmt.Errorf("holds a value that JSON cannot express: %w: write it as text", err)
		}
		docs = append(docs, doc)
	}
	if len(docs) == 0 {
		return nil, errors.New("is empty: give a command such as command: [wc, -w, in.txt]")
	}
	return docs, nil
}

// withoutEmpty leaves out the headers of documents in which nothing stands: the parser takes such a
// one for the end of the file.
func withoutEmpty(tokens token.Tokens) token.Tokens {
	kept := make(token.Tokens, 0, len(tokens))
	for i, t := range tokens {
		if t.Type == token.DocumentHeaderType {
			next := slices.IndexFunc(tokens[i+1:], func(t *token.Token) bool { return t.Type != token.CommentType })
			if next < 0 || tokens[i+1+next].Type == token.DocumentHeaderType {
				continue
			}
		}
		kept = append(kept, t)
	}
	return kept
}

func notYAML(err error) error { return fmt.Errorf("is not YAML: %s", strings.TrimSpace(err.Error())) }

// markNumbers makes an integer of each plain scalar that is a number in JSON: the parser has a
// place for the text of an integer only, and takes 1e3 for a string.
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

// exact leaves numbers as they are written: 1.10 is not 1.1, and long ones lose no digit. Where a
// job has texts, such as in command, what is a number or a truth value of YAML is the text that
// stands there.
type exact struct {
	foreign bool // what is below is not Pawl's, such as args
}

func (e exact) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.IntegerNode:
		if numberRE.MatchString(n.Token.Value) {
			n.Value = json.Number(n.Token.Value)
		}
	case *ast.MappingValueNode:
		switch key := n.Key.GetToken().Value; {
		case key == "args" || key == "notes":
			e.foreign = true
		case !e.foreign && slices.Contains(ofTexts, key):
			asTexts(n.Value)
		}
	}
	return e
}

// ofTexts are the fields of a job that are lists or maps of texts.
var ofTexts = []string{"command", "arguments", "launch", "env", "labels"}

// asTexts makes texts of the scalars in a list or a map. What is null stays so, and is refused.
func asTexts(n ast.Node) {
	text := func(v *ast.Node) {
		switch s := (*v).(type) {
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
			*v = ast.String(s.GetToken())
		}
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for i := range n.Values {
			text(&n.Values[i])
		}
	case *ast.MappingNode:
		for _, v := range n.Values {
			text(&v.Value)
		}
	case *ast.MappingValueNode:
		text(&n.Value)
	}
}
