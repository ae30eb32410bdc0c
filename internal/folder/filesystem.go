package folder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A FileSystem is the kind of one.
type FileSystem struct {
	Kind string // as mount(8) names it, such as ext4 or nfs4
	// Network says that machines share it: what this one has in memory of it, others do not see.
	Network bool
}

// network are the kinds that machines share, beside those of FUSE.
var network = []string{
	"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "gpfs", "lustre", "nfs", "nfs3", "nfs4", "ocfs2", "panfs", "pvfs2",
	"smb3", "smbfs", "virtiofs", "wekafs",
}

// On tells on which file system a folder is, or would be made.
func On(dir string) (FileSystem, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return FileSystem{}, err
	}
	dir, err = filepath.Abs(dir)
	for err == nil {
		var at string
		if at, err = filepath.EvalSymlinks(dir); err == nil {
			return on(string(mounts), at), nil
		}
		if up := filepath.Dir(dir); os.IsNotExist(err) && up != dir {
			dir, err = up, nil
		}
	}
	return FileSystem{}, err
}

// on finds the file system of a path in the lines of proc(5) mountinfo: that of the longest mount
// point above it, and of several there the last.
func on(mounts, at string) (fs FileSystem) {
	longest := -1
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kinds := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kinds) == 0 {
			continue
		}
		point := strings.TrimSuffix(unescape.Replace(fields[4]), "/")
		if within := at == point || strings.HasPrefix(at, point+"/"); within && len(point) >= longest {
			longest = len(point)
			fs = FileSystem{kinds[0], slices.Contains(network, kinds[0]) || strings.HasPrefix(kinds[0], "fuse.")}
		}
	}
	return fs
}
