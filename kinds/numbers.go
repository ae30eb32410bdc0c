package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// maxDigits is how many characters a number may have that is compared with a schema, and up to
// which power of ten it may go. The comparison is exact, so it takes as much time and memory as the
// number has digits when it is written out. It is more than floating point has (1e308).
const maxDigits = 400

// checkNumbers adds to all a problem for each number in v that is too large to be computed with.
// path is where v stands.
func checkNumbers(path string, v any, all *job.SpecError) {
	switch v := v.(type) {
	case json.Number:
		_, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		n, err := strconv.Atoi(exponent)
		if len(v) > maxDigits || exponent != "" && (err != nil || n > maxDigits || n < -maxDigits) {
			all.Add(job.Problem{
				Path: path, Value: job.Shorten(string(v), 64), What: "is a number that is too long",
				Remedy: fmt.Sprintf("keep it to %d characters, and between 1e-%[1]d and 1e%[1]d; or give it as a text", maxDigits),
			})
		}
	case []any:
		for i, x := range v {
			checkNumbers(fmt.Sprintf("%s[%d]", path, i), x, all)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			checkNumbers(member(path, name), v[name], all)
		}
	}
}
