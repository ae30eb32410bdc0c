package api_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestWords holds the descriptions of what users write to the comments on its fields.
func TestWords(t *testing.T) {
	testenv.HoldWords(t, "words.json", testenv.FieldWords(t, "../job", "json"), *update)
}
