package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
)

type copyFigures struct {
	Bytes    int64   `json:"bytes"`
	Put      float64 `json:"put_mb_per_second"`
	Get      float64 `json:"get_mb_per_second"`
	SFTPPut  float64 `json:"sftp_put_mb_per_second"`
	SFTPGet  float64 `json:"sftp_get_mb_per_second"`
	RatioPut float64 `json:"ratio_put"`
	RatioGet float64 `json:"ratio_get"`
	Peak     float64 `json:"peak_rss_mb"` // VmHWM

	rounds int
}

// Rows implements [bench.Figures].
func (f *copyFigures) Rows(row func(name, format string, args ...any)) {
	row("copy there", "%.0f MB/s; sftp %.0f MB/s, ratio %.2f", f.Put, f.SFTPPut, f.RatioPut)
	row("copy back", "%.0f MB/s; sftp %.0f MB/s, ratio %.2f", f.Get, f.SFTPGet, f.RatioGet)
	row("copy load", "%d MB, %d rounds; %.1f MB of memory at most", f.Bytes/1e6, f.rounds, f.Peak)
}

// sftpProgram returns where the program sftp is.
func sftpProgram() (string, error) {
	name, err := exec.LookPath("sftp")
	if err != nil {
		return "", term.Usagef("sftp is missing, beside which copies are measured: install it " +
			"(Debian: apt install openssh-client), or leave copy out of --only")
	}
	return name, nil
}

// copy measures a large file on its way there and back. A MB is a million bytes.
func (p *part) copy(ctx context.Context, sftp string) (_ *copyFigures, err error) {
	f := &copyFigures{Bytes: int64(p.megabytes) * 1e6, rounds: p.rounds}
	sys, closed, err := node.OpenSystem(ctx, p.server.System("alone", filepath.Join(p.dir, "there"), p.server.Port),
		p.Log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	from, there, back := filepath.Join(p.dir, "file"), filepath.Join(p.dir, "there", "file"), filepath.Join(p.dir, "back")
	if err := writeNoise(from, f.Bytes); err != nil {
		return nil, err
	}
	near, remote := node.LocalFiles(), sys.Host.Files()
	// As inputs are copied to a far system, and as sftp does it.
	o := files.CopyOptions{PutOptions: files.PutOptions{NoSync: true}, NoDigest: true}
	put := func() error {
		_, err := files.Copy(ctx, remote, there, near, from, o)
		return err
	}
	get := func() error {
		_, err := files.Copy(ctx, near, back, remote, there, o)
		return err
	}
	sftpPut := func() error { return p.sftp(ctx, sftp, "put", from, there) }
	sftpGet := func() error { return p.sftp(ctx, sftp, "get", there, back) }
	rate := func(to string, run func() error) (float64, error) {
		if err := os.RemoveAll(to); err != nil {
			return 0, err
		}
		begin := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		info, err := os.Stat(to)
		if err == nil && info.Size() != f.Bytes {
			err = fmt.Errorf("%s has %d bytes, and is to have %d", to, info.Size(), f.Bytes)
		}
		return float64(f.Bytes) / 1e6 / took.Seconds(), err
	}
	if err := bed.ForgetPeak(); err != nil {
		return nil, err
	}
	var rates [4][]float64 // put, get, and both of sftp
	var puts, gets []float64
	for i := range p.rounds {
		type way struct {
			of  int
			to  string
			run func() error
		}
		ways := append(inTurns(i, way{0, there, put}, way{2, there, sftpPut}),
			inTurns(i, way{1, back, get}, way{3, back, sftpGet})...)
		for _, w := range ways {
			r, err := rate(w.to, w.run)
			if err != nil {
				return nil, err
			}
			rates[w.of] = append(rates[w.of], r)
		}
		puts, gets = append(puts, rates[0][i]/rates[2][i]), append(gets, rates[1][i]/rates[3][i])
		fmt.Fprintf(p.Progress, "round %d of %d: there %.0f MB/s, sftp %.0f; back %.0f MB/s, sftp %.0f\n", i+1, p.rounds,
			rates[0][i], rates[2][i], rates[1][i], rates[3][i])
	}
	f.Peak = bed.PeakMB()
	f.Put, f.Get, f.SFTPPut, f.SFTPGet = bench.Rounded(bench.Median(rates[0]), 1),
		bench.Rounded(bench.Median(rates[1]), 1), bench.Rounded(bench.Median(rates[2]), 1),
		bench.Rounded(bench.Median(rates[3]), 1)
	f.RatioPut, f.RatioGet = bench.Rounded(bench.Median(puts), 3), bench.Rounded(bench.Median(gets), 3)
	return f, nil
}

// sftp copies a file by the program of OpenSSH.
func (p *part) sftp(ctx context.Context, program, verb, from, to string) error {
	word := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
	args := append(p.server.ClientOptions(), "-q", "-b", "-", "-P", fmt.Sprint(p.server.Port), p.server.User+"@127.0.0.1")
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(verb + " " + word(from) + " " + word(to) + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// writeNoise makes a file that nothing compresses.
func writeNoise(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
	return errors.Join(err, f.Close())
}
