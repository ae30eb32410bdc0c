package jobfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MostListed is the most elements of a [List].
const MostListed = 300_000

// A List is an array in a JSON file that a program can write to. Two bytes of JSON may be an
// element that takes hundreds in memory, so elements are counted while they are read, and the first
// that does not fit ends it.
type List[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (l *List[T]) UnmarshalJSON(text []byte) error {
	*l = nil
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("it is no list")
	}
	for d.More() {
		if len(*l) == MostListed {
			return fmt.Errorf("the list has more than %d elements", MostListed)
		}
		var element T
		if err := d.Decode(&element); err != nil {
			return err
		}
		*l = append(*l, element)
	}
	return nil
}
