package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/sqlite"
	"github.com/pawl-jobs/pawl/store"
)

type Resize struct {
	Image string `json:"image"`
}

var Thumbnail = pawl.Task[Resize, string]{Kind: "thumbnail"}

// A row of the program and a job are there together, or neither is.
func ExampleWithTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "pawl")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	svc, err := pawl.Open(ctx, sqlite.At(dir), pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		panic(err)
	}
	defer svc.Close()
	err = sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS shop_images (name TEXT PRIMARY KEY)")
		return err
	})
	if err != nil {
		panic(err)
	}

	add := func(image string, after error) error {
		return sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO shop_images VALUES (?)", image); err != nil {
				return err
			}
			if _, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: image}, sqlite.In(tx)); err != nil {
				return err
			}
			return after
		})
	}
	fmt.Println(add("cat.png", nil))
	fmt.Println(add("dog.png", errors.New("changed my mind")))
	page, err := svc.Jobs().List(ctx, store.Query{})
	fmt.Println(len(page.Jobs), "job", err)
	// Output:
	// <nil>
	// changed my mind
	// 1 job <nil>
}
