// Package yamltree takes YAML apart within bounds: neither its depth nor its aliases cost more than
// a document is worth.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a document.
const (
	MaxDepth    = 64        // lists and maps in each other
	MaxNodes    = 1_000_000 // lists and maps in brackets and braces
	MaxLines    = 2_000_000 // lines, and as many commas
	MaxKeys     = 20_000    // of a map that is not in braces, and documents: the parser takes the square of their time
	MaxExpanded = 64 << 20  // bytes with each alias replaced by what it stands for
)

var (
	errDeep = fmt.Errorf("has lists and maps more than %d deep in each other: write it flatter", MaxDepth)
	errWide = fmt.Errorf("has a map with more than %d keys, or as many documents: write large maps in braces, such as "+
		"{a: 1, b: 2}, or make several files of it", MaxKeys)
)

// Tokens takes a document apart. Its errors go on from the name of a file.
func Tokens(content []byte) (token.Tokens, error) {
	if bytes.Count(content, []byte("[")) > MaxNodes || bytes.Count(content, []byte("{")) > MaxNodes {
		return nil, fmt.Errorf("has more than %d lists or maps: make several files of it", MaxNodes)
	}
	if bytes.Count(content, []byte("\n")) > MaxLines || bytes.Count(content, []byte(",")) > MaxLines {
		return nil, fmt.Errorf("has more than %d lines or commas: make several files of it", MaxLines)
	}
	tokens := lexer.Tokenize(string(content))
	if err := shape(tokens); err != nil {
		return nil, err
	}
	return tokens, nil
}

// Check sees that the aliases of a file stand for no more than it may have.
func Check(file *ast.File) error {
	for _, d := range file.Docs {
		s := sizes{anchors: map[string]int{}}
		if _, err := s.of(d.Body); err != nil {
			return err
		}
	}
	return nil
}

// shape returns an error if tokens stand too deep in each other for a parser that calls itself: in
// brackets, or by the columns at which lines begin, and what follows a dash. It also counts keys.
func shape(tokens token.Tokens) error {
	inBrackets, docs := 0, 0
	type block struct{ column, keys int }
	var open []block // the block lists and maps around the token
	fresh, line := true, 0
	for _, t := range tokens {
		switch t.Type {
		case token.CommentType:
			continue
		case token.SequenceStartType, token.MappingStartType:
			inBrackets++
		case token.SequenceEndType, token.MappingEndType:
			inBrackets = max(0, inBrackets-1)
		case token.DocumentHeaderType, token.DocumentEndType:
			if inBrackets, open, docs = 0, nil, docs+1; docs > MaxKeys {
				return errWide
			}
			continue
		}
		if t.Position.Line != line {
			fresh, line = true, t.Position.Line
		}
		if fresh && inBrackets == 0 {
			here := block{column: t.Position.Column}
			for len(open) > 0 && open[len(open)-1].column >= here.column {
				if last := open[len(open)-1]; last.column == here.column {
					here.keys = last.keys
				}
				open = open[:len(open)-1]
			}
			if t.Type != token.SequenceEntryType {
				here.keys++
			}
			if open = append(open, here); here.keys > MaxKeys {
				return errWide
			}
		}
		fresh = t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType
		if inBrackets+len(open) > 2*MaxDepth {
			return errDeep
		}
	}
	return nil
}

// Sizes are those of the trees for which the aliases of a document stand.
type sizes struct {
	anchors map[string]int
	depth   int
	total   int
}

var errExpanded = fmt.Errorf("stands for more than %d bytes: use fewer aliases (*name), or make several files of it", MaxExpanded)

// of returns how many bytes a tree has, about, with each alias replaced.
func (s *sizes) of(n ast.Node) (size int, err error) {
	if s.depth++; s.depth > 8*MaxDepth { // an anchor and a tag are nodes of their own
		return 0, errDeep
	}
	defer func() { s.depth-- }()
	add := func(list ...ast.Node) {
		for _, n := range list {
			one, wrong := s.of(n)
			if size += one; wrong != nil && err == nil {
				err = wrong
			}
		}
	}
	switch n := n.(type) {
	case nil:
		return 0, nil
	case *ast.MappingNode:
		for _, v := range n.Values {
			add(v)
		}
	case *ast.MappingValueNode:
		add(n.Key, n.Value)
	case *ast.MappingKeyNode:
		add(n.Value)
	case *ast.SequenceNode:
		add(n.Values...)
	case *ast.TagNode:
		add(n.Value)
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		s.anchors[name] = -1
		add(n.Value)
		s.anchors[name] = size
	case *ast.AliasNode:
		if size = s.anchors[n.Value.GetToken().Value]; size < 0 {
			return 0, errors.New("has an alias within what it stands for: write that out")
		}
		s.total += size
	default:
		size = 1 + len(n.GetToken().Value)
	}
	size += 2
	if size > MaxExpanded || s.total > MaxExpanded {
		return size, errExpanded
	}
	return size, err
}
