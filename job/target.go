package job

// MayShare reports whether two jobs that are submitted together may put their results into one
// folder: both overwrite files that are there, or the two are one job. Both specs have an Archive.
func MayShare(a, b *Spec) bool {
	if a.Archive.Overwrite && b.Archive.Overwrite || a.ExternalID != "" && a.ExternalID == b.ExternalID {
		return true
	}
	if a.Unique == nil || b.Unique == nil || a.Unique.Until != b.Unique.Until || a.Unique.Until == WhileRunning {
		return false
	}
	one, err := a.UniqueKey()
	other, otherErr := b.UniqueKey()
	return err == nil && otherErr == nil && one == other
}

// SharedTarget returns the problem of a job whose results would go to a folder that is taken. other
// names the job that has the folder.
func SharedTarget(to, other string) Problem {
	return Problem{
		Path: "archive.to", Value: short(to), What: "is the folder for the results of " + other + " too",
		Remedy: "give each job its own, such as one with ${PAWL_JOB_NAME} in it, or set overwrite: true in both",
	}
}
