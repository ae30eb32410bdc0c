package api_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestWords holds the descriptions in the document to the comments on fields.
func TestWords(t *testing.T) {
	words := map[string]map[string]string{}
	for _, dir := range []string{"../job", "../kinds", "../claims", "../service", "."} {
		for _, tag := range []string{"json", "query", "header", "path"} {
			for name, fields := range testenv.FieldWords(t, dir, tag) {
				name = strings.ToUpper(name[:1]) + name[1:] // as schemas are called
				if words[name] == nil {
					words[name] = map[string]string{}
				}
				maps.Copy(words[name], fields)
			}
		}
	}
	testenv.HoldWords(t, "words.json", words, *update)
}
