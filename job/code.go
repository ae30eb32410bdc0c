package job

// A Code says why a job stands where it stands: why it ended, or what blocks it. The list is closed.
type Code string

// The condition codes.
const (
	NormalCompletion   Code = "NORMAL_COMPLETION"
	CanceledByUser     Code = "CANCELED_BY_USER"
	PrerequisiteFailed Code = "PREREQUISITE_FAILED"
	InvalidDefinition  Code = "INVALID_DEFINITION"
	InputMissing       Code = "INPUT_MISSING"
	InputUnreadable    Code = "INPUT_UNREADABLE"
	StagingFailed      Code = "STAGING_FAILED"
	LaunchFailed       Code = "LAUNCH_FAILED"
	ProgramFailed      Code = "PROGRAM_FAILED"
	ProgramKilled      Code = "PROGRAM_KILLED"
	ProgramLost        Code = "PROGRAM_LOST"
	ArchiveFailed      Code = "ARCHIVE_FAILED"
	FilesystemFull     Code = "FILESYSTEM_FULL"
	TaskFailed         Code = "TASK_FAILED"
	TaskPanicked       Code = "TASK_PANICKED"
	RecoveryLimit      Code = "RECOVERY_LIMIT"
	RecoveryTimeout    Code = "RECOVERY_TIMEOUT"
	InternalError      Code = "INTERNAL_ERROR"
)

// A CodeInfo documents one code.
type CodeInfo struct {
	Code        Code
	Raised      string // by whom and when
	Recoverable bool   // whether it may clear by itself
	Remedy      string // what a user does next
}

// Codes documents every code, in the order of a job's life.
var Codes = []CodeInfo{
	{NormalCompletion, "the program ended with exit code 0 and its results are archived, or the handler returned no error", false, "nothing to do"},
	{CanceledByUser, "a cancel was asked for, and nothing of the job runs any more", false, "resubmit the job if it is wanted after all"},
	{PrerequisiteFailed, "a job that had to finish first ended otherwise", false, "look at that job, then submit both again"},
	{InvalidDefinition, "PROCESSING_INPUTS: the spec cannot be carried out on this system", false, "correct the field that the message names and submit again"},
	{InputMissing, "PROCESSING_INPUTS or STAGING_INPUTS: an input is not there", false, "check the path of the input that the message names"},
	{InputUnreadable, "PROCESSING_INPUTS or STAGING_INPUTS: an input is there and cannot be read", false, "give the user that runs Pawl the right to read it"},
	{StagingFailed, "PROCESSING_INPUTS, STAGING_INPUTS or STAGING_JOB: the folder or a file in it cannot be made", false, "check space and rights of the work folder that the message names"},
	{LaunchFailed, "SUBMITTING_JOB: the program could not be started", false, "check that the program exists on the system and may be executed"},
	{ProgramFailed, "the program ended with an exit code other than 0", false, "read the last lines of its log: pawl logs JOB"},
	{ProgramKilled, "the program was ended by a signal", false, "look for memory or time limits of the machine, and for who sent the signal"},
	{ProgramLost, "the program is gone and left no exit code: its process was killed with its wrapper, or the machine restarted", false, "submit again, or allow more attempts with retry.max_attempts"},
	{ArchiveFailed, "ARCHIVING: a result cannot be copied", false, "the results are still in the job's folder that the message names: free the target, then resubmit"},
	{FilesystemFull, "any copy: no space left on the file system", true, "free space on the file system that the message names"},
	{TaskFailed, "the handler returned an error at its last attempt", false, "read the errors of all attempts: pawl history JOB"},
	{TaskPanicked, "the handler panicked at its last attempt", false, "read the stack in the job's history and correct the handler"},
	{RecoveryLimit, "the job was interrupted by crashes more often than it may be", false, "find out what kills the processes that run it before it is submitted again"},
	{RecoveryTimeout, "the condition that blocked the job did not clear in time", false, "wait until the condition is gone, then resubmit"},
	{InternalError, "Pawl itself could not go on with this job", false, "report it with the output of pawl history JOB"},
}

// Known reports whether c is one of [Codes].
func (c Code) Known() bool {
	for _, i := range Codes {
		if i.Code == c {
			return true
		}
	}
	return false
}
