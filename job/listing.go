package job

import "time"

// A Listing is what is in a folder of a system.
type Listing struct {
	// The name of the system.
	System string `json:"system" example:"lab"`

	// The folder, or the file that was asked for.
	Path string `json:"path" example:"/data/reference"`

	// What is in the folder, by name. If path is a file: that file alone.
	Entries []Listed `json:"entries"`

	// Whether there is more in the folder than is listed.
	More bool `json:"more"`
}

// A Listed is a file, a folder or something else in a [Listing].
type Listed struct {
	// Its name in the folder.
	Name string `json:"name" example:"genome.fa"`

	// link: it leads elsewhere. other: a pipe, a socket or a device.
	Type string `json:"type" enum:"file,folder,link,other" example:"file"`

	// The bytes of a file.
	Size int64 `json:"size" example:"1048576"`

	// The rights, as ls prints them.
	Mode string `json:"mode" example:"-rw-r--r--"`

	// When its content was changed last.
	Modified time.Time `json:"modified"`
}

// The types of a [Listed].
const (
	ListedFile   = "file"
	ListedFolder = "folder"
	ListedLink   = "link"
	ListedOther  = "other"
)

// MaxListed is how many entries a [Listing] has at most.
const MaxListed = 1000
