package folder

import (
	"path/filepath"
	"testing"
)

// The file system of a folder is that of the mount point next above it.
func TestOn(t *testing.T) {
	const mounts = `21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 21 0:40 / /home rw - nfs4 server:/home rw
31 30 0:41 / /home/ada\040b/scratch rw shared:7 master:2 - lustre mds@tcp:/scratch rw
32 21 0:42 / /mnt rw - fuse.sshfs host: rw
33 21 8:1 / /mnt/disk rw - fuseblk /dev/sdb1 rw
34 21 0:43 / /tmp rw - tmpfs tmpfs rw
35 21 0:44 / /tmp rw - xfs /dev/vdb rw
broken
`
	for at, want := range map[string]FileSystem{
		"/": {"ext4", false}, "/homes": {"ext4", false}, "/home": {"nfs4", true}, "/home/ada": {"nfs4", true},
		"/home/ada b/scratch/x": {"lustre", true}, "/mnt/x": {"fuse.sshfs", true}, "/mnt/disk/x": {"fuseblk", false},
		"/tmp/x": {"xfs", false},
	} {
		if got := on(mounts, at); got != want {
			t.Errorf("%s: %+v, not %+v", at, got, want)
		}
	}
	here, err := On(t.TempDir())
	if there, err2 := On(filepath.Join(t.TempDir(), "not", "there")); err != nil || err2 != nil || here.Kind == "" || here != there {
		t.Errorf("%+v, %v; %+v, %v", here, err, there, err2)
	}
}
