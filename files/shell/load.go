package shell

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
)

// Load implements [files.Loader].
func (f *Files) Load(ctx context.Context, dir string) (*files.Loaded, error) {
	if err := errors.Join(files.Check(dir), ctx.Err()); err != nil {
		return nil, err
	}
	return do(ctx, &f.loads, dir, f.load)
}

// large is a function that counts what is in the folder where it is called, at the levels that are
// loaded. The shell itself finds that, so it is soon known.
const large = `large() {
	set --
	for d in . * .[!.]* ..?* */* */.[!.]* .[!.]*/* .[!.]*/.[!.]*; do
		[ -d "$d" ] && [ ! -L "$d" ] && set -- "$@" "$d"/* "$d"/.[!.]*
		[ $# -le %d ] || return 0
	done
	return 1
}
`

// loading describes the folders that are its arguments, and prints what is in their small files.
// Then it describes them once more: what is the same has not changed meanwhile, and what each file
// had in it follows from the sizes.
const loading = `show='%%y %%m %%s %%T@ %%C@ %%i %%d %%p\000'
find "$@" -maxdepth %[1]d -printf "$show" -type f -size -%[2]d -exec cat {} +
printf '%[3]s'
find "$@" -maxdepth %[1]d -printf "$show"
echo "%[3]s$?"
`

func (f *Files) load(ctx context.Context, all []*task[string, *files.Loaded]) error {
	nonce := rand.Text()
	script := "(\n" + begin + fmt.Sprintf(large, maxFiles) + "set --\n"
	for i, t := range all {
		script += fmt.Sprintf("cd -P %s && ! large && printf '%d %%s\\000' \"$PWD\" && set -- \"$@\" \"$PWD\"\n",
			quote(t.of), i)
	}
	script += "printf '" + nonce + "'; [ $# = 0 ] && exit\n" +
		fmt.Sprintf(loading, maxDepth, maxRead/512+1, nonce) + ") </dev/null 2>/dev/null"
	out, err := f.Run(ctx, script)
	if err != nil {
		return err
	}
	parts := bytes.Split(out, []byte(nonce))
	if len(parts) != 4 || string(parts[3]) != "0\n" {
		return nil // some cannot be looked at
	}
	content, same := bytes.CutPrefix(parts[1], parts[2])
	if !same {
		return nil
	}
	roots := map[string]*task[string, *files.Loaded]{}
	for line := range bytes.SplitSeq(parts[0], []byte{0}) {
		number, real, _ := strings.Cut(string(line), " ")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(all) && roots[real] == nil {
			roots[real] = all[i]
		}
	}
	f.take(parts[2], content, roots)
	return nil
}

// take reads the descriptions of files, and what is in them. roots are the folders.
func (f *Files) take(shown, content []byte, roots map[string]*task[string, *files.Loaded]) {
	loaded := map[*task[string, *files.Loaded]]*files.Loaded{}
	var now *task[string, *files.Loaded] // whose folder is being described
	var root string
	deep := map[*task[string, *files.Loaded]]bool{}
	for line := range bytes.SplitSeq(bytes.TrimSuffix(shown, []byte{0}), []byte{0}) {
		name, info, ok := parse(string(line))
		if !ok {
			return
		}
		if t := roots[name]; t != nil && loaded[t] == nil {
			now, root, loaded[t] = t, name, files.NewLoaded(f.Rest, t.of, name, info)
			continue
		}
		rel, below := strings.CutPrefix(name, root+"/")
		if now == nil || !below {
			return
		}
		var b []byte
		deep[now] = deep[now] || info.mode.IsDir() && info.depth == maxDepth // there may be more in it
		if info.mode.IsRegular() && info.size <= maxRead {
			if int64(len(content)) < info.size {
				return
			}
			b, content = content[:info.size:info.size], content[info.size:]
			if b == nil {
				b = []byte{}
			}
		}
		if !loaded[now].Add(rel, info, b) {
			return
		}
	}
	if len(content) > 0 {
		return
	}
	for t, l := range loaded {
		if !deep[t] {
			t.a, t.err = l, nil
		}
	}
}

// ReadMany implements [files.ReaderOfMany]. The files are described before and after they are read.
func (f *Files) ReadMany(ctx context.Context, names []string) ([][]byte, error) {
	words := ""
	for _, name := range names {
		if err := files.Check(name); err != nil {
			return nil, err
		}
		words += " " + quote(name)
	}
	if len(names) == 0 || len(names) > files.MaxMany || ctx.Err() != nil {
		return nil, errors.Join(errNot, ctx.Err())
	}
	nonce := rand.Text()
	out, err := f.Run(ctx, "(\n"+begin+"set --"+words+"\n"+
		fmt.Sprintf(loading, 0, files.MaxSmall/512+1, nonce)+") </dev/null 2>/dev/null")
	if err != nil {
		return nil, err
	}
	parts := bytes.Split(out, []byte(nonce))
	if len(parts) != 3 || string(parts[2]) != "0\n" {
		return nil, errNot
	}
	content, same := bytes.CutPrefix(parts[0], parts[1])
	lines := bytes.Split(bytes.TrimSuffix(parts[1], []byte{0}), []byte{0})
	if !same || len(lines) != len(names) {
		return nil, errNot
	}
	contents := make([][]byte, len(names))
	for i, line := range lines {
		name, info, ok := parse(string(line))
		if !ok || name != names[i] || !info.mode.IsRegular() || int64(len(content)) < info.size {
			return nil, errNot
		}
		contents[i] = bytes.Clone(content[:info.size])
		if contents[i] == nil {
			contents[i] = []byte{}
		}
		content = content[info.size:]
	}
	if len(content) > 0 {
		return nil, errNot
	}
	return contents, nil
}

// info describes a file.
type info struct {
	name     string
	mode     fs.FileMode
	depth    int // below the folder that is loaded
	size     int64
	modified time.Time
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.modified }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return nil }

var types = map[string]fs.FileMode{
	"f": 0, "d": fs.ModeDir, "l": fs.ModeSymlink, "p": fs.ModeNamedPipe, "s": fs.ModeSocket,
	"b": fs.ModeDevice, "c": fs.ModeDevice | fs.ModeCharDevice,
}

// parse reads a description. Times are whole seconds, as SFTP tells them.
func parse(line string) (name string, _ *info, ok bool) {
	w := strings.SplitN(line, " ", 8)
	if len(w) < 8 {
		return "", nil, false
	}
	typ, known := types[w[0]]
	mode, err1 := strconv.ParseUint(w[1], 8, 12)
	size, err2 := strconv.ParseInt(w[2], 10, 64)
	seconds, _, _ := strings.Cut(w[3], ".")
	modified, err3 := strconv.ParseInt(seconds, 10, 64)
	depth, err4 := strconv.Atoi(w[6])
	i := &info{
		name: path.Base(w[7]), mode: typ | fs.FileMode(mode)&fs.ModePerm, depth: depth, size: size,
		modified: time.Unix(modified, 0),
	}
	for bit, flag := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			i.mode |= flag
		}
	}
	return w[7], i, known && errors.Join(err1, err2, err3, err4) == nil
}
