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
	MaxExpanded = 64 << 20  // bytes with each alias replaced by what it stands for
)

var errDeep = fmt.Errorf("has lists and maps more than %d deep in each other: write it flatter", MaxDepth)

// Tokens takes a document apart. Its errors go on from the name of a file.
func Tokens(content []byte) (token.Tokens, error) {
	if bytes.Count(content, []byte("[")) > MaxNodes || bytes.Count(content, []byte("{")) > MaxNodes {
		return nil, fmt.Errorf("has more than %d lists or maps: make several files of it", MaxNodes)
	}
	tokens := lexer.Tokenize(string(content))
	if deep(tokens) {
		return nil, errDeep
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

// deep reports whether tokens stand too deep in each other for a parser that calls itself: in
// brackets, or by the columns at which lines begin, and what follows a dash.
func deep(tokens token.Tokens) bool {
	inBrackets := 0
	var columns []int // of the block lists and maps that are open
	fresh, line := true, 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			inBrackets++
		case token.SequenceEndType, token.MappingEndType:
			inBrackets = max(0, inBrackets-1)
		case token.DocumentHeaderType, token.DocumentEndType:
			inBrackets, columns = 0, nil
			continue
		}
		if t.Position.Line != line {
			fresh, line = true, t.Position.Line
		}
		if fresh && inBrackets == 0 {
			for len(columns) > 0 && columns[len(columns)-1] >= t.Position.Column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, t.Position.Column)
		}
		fresh = t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType
		if inBrackets+len(columns) > 2*MaxDepth {
			return true
		}
	}
	return false
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
