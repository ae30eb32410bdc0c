package job

// A Code says why a job ended, or what blocks it. The list is closed.
type Code string

// The codes. [Codes] says what each of them means.
const (
	NormalCompletion   Code = "NORMAL_COMPLETION"
	CanceledByUser     Code = "CANCELED_BY_USER"
	CanceledByJob      Code = "CANCELED_BY_JOB"
	Abandoned          Code = "ABANDONED"
	PrerequisiteFailed Code = "PREREQUISITE_FAILED"
	InvalidDefinition  Code = "INVALID_DEFINITION"
	InputMissing       Code = "INPUT_MISSING"
	InputUnreadable    Code = "INPUT_UNREADABLE"
	InputChanged       Code = "INPUT_CHANGED"
	StagingFailed      Code = "STAGING_FAILED"
	LaunchFailed       Code = "LAUNCH_FAILED"
	ProgramFailed      Code = "PROGRAM_FAILED"
	ProgramKilled      Code = "PROGRAM_KILLED"
	ProgramLost        Code = "PROGRAM_LOST"
	RanBefore          Code = "RAN_BEFORE"
	TimeLimit          Code = "TIME_LIMIT"
	OutputMissing      Code = "OUTPUT_MISSING"

	SchedulerRejected    Code = "SCHEDULER_REJECTED"
	SchedulerTimeout     Code = "SCHEDULER_TIMEOUT"
	SchedulerOutOfMemory Code = "SCHEDULER_OUT_OF_MEMORY"
	SchedulerCanceled    Code = "SCHEDULER_CANCELED"
	SchedulerNodeFail    Code = "SCHEDULER_NODE_FAIL"
	SchedulerPreempted   Code = "SCHEDULER_PREEMPTED"
	SchedulerDeadline    Code = "SCHEDULER_DEADLINE"
	SchedulerRerun       Code = "SCHEDULER_RERUN"

	ArchiveExists      Code = "ARCHIVE_EXISTS"
	ArchiveFailed      Code = "ARCHIVE_FAILED"
	FilesystemFull     Code = "FILESYSTEM_FULL"
	FilesystemReadOnly Code = "FILESYSTEM_READ_ONLY"
	DiskQuotaExceeded  Code = "DISK_QUOTA_EXCEEDED"
	MachineExhausted   Code = "MACHINE_EXHAUSTED"

	SystemDisabled            Code = "SYSTEM_DISABLED"
	AppDisabled               Code = "APP_DISABLED"
	TenantSuspended           Code = "TENANT_SUSPENDED"
	HostUnknown               Code = "HOST_UNKNOWN"
	HostUnreachable           Code = "HOST_UNREACHABLE"
	HostRefused               Code = "HOST_REFUSED"
	ConnectionTimeout         Code = "CONNECTION_TIMEOUT"
	AuthenticationFailed      Code = "AUTHENTICATION_FAILED"
	FirstAuthenticationFailed Code = "FIRST_AUTHENTICATION_FAILED"
	HostKeyUnknown            Code = "HOST_KEY_UNKNOWN"
	HostKeyChanged            Code = "HOST_KEY_CHANGED"
	LoginRequired             Code = "LOGIN_REQUIRED"
	ChannelRefused            Code = "CHANNEL_REFUSED"
	ConnectionLost            Code = "CONNECTION_LOST"
	ShellBroken               Code = "SHELL_BROKEN"
	ToolsMissing              Code = "TOOLS_MISSING"
	SchedulerUnavailable      Code = "SCHEDULER_UNAVAILABLE"
	SchedulerQuota            Code = "SCHEDULER_QUOTA"

	SchedulerPartitionUnavailable Code = "SCHEDULER_PARTITION_UNAVAILABLE"

	FilesUnavailable    Code = "FILES_UNAVAILABLE"
	TransferInterrupted Code = "TRANSFER_INTERRUPTED"
	TaskBlocked         Code = "TASK_BLOCKED"

	TaskFailed      Code = "TASK_FAILED"
	TaskPanicked    Code = "TASK_PANICKED"
	TaskStalled     Code = "TASK_STALLED"
	ArgsUnreadable  Code = "ARGS_UNREADABLE"
	Poison          Code = "POISON"
	RecoveryLimit   Code = "RECOVERY_LIMIT"
	RecoveryTimeout Code = "RECOVERY_TIMEOUT"
	RecoveryGivenUp Code = "RECOVERY_GIVEN_UP"
	InternalError   Code = "INTERNAL_ERROR"
)

// A CodeInfo documents one code.
type CodeInfo struct {
	Code        Code
	Raised      string // when, and by whom
	Recoverable bool   // it may clear by itself
	Remedy      string // what a user does next; JOB is the job, NAME the system
}

// Codes documents every code, in the order of a job's life.
var Codes = []CodeInfo{
	{NormalCompletion, "the program ended with exit code 0 and its results are archived, or the handler returned " +
		"no error", false, "nothing to do"},
	{
		CanceledByUser, "a cancel was asked for, and nothing of the job runs any more", false,
		"run it again if it is wanted after all",
	},
	{
		CanceledByJob, "its handler said that it is not wanted any more", false,
		"run it again if it is wanted after all",
	},
	{
		Abandoned, "a cancel was asked for with force, and it could not be confirmed that the job's program is dead",
		false, "look on the machine that the message names whether the program still runs, and end it there",
	},
	{
		PrerequisiteFailed, "a job that had to finish first ended otherwise", false,
		"look at that job, then run both again",
	},
	{
		InvalidDefinition, "PROCESSING_INPUTS: the spec cannot be carried out on this system", false,
		"correct the field that the message names, then run it again",
	},
	{
		InputMissing, "PROCESSING_INPUTS or STAGING_INPUTS: an input is not there", false,
		"put the input there that the message names, or correct its path in the job file; then run it again",
	},
	{
		InputUnreadable, "PROCESSING_INPUTS or STAGING_INPUTS: an input is there and cannot be read", false,
		"give the user that runs Pawl the right to read it, put a copy where a link is that leads elsewhere, " +
			"or name a file or folder in place of a pipe, socket or device; then run it again",
	},
	{
		InputChanged, "STAGING_INPUTS: the content of an input does not match the sha256 in the job file", false,
		"find out which of the two is wrong: sha256sum FILE prints the sum of a file; then run it again",
	},
	{
		StagingFailed, "PROCESSING_INPUTS, STAGING_INPUTS or STAGING_JOB: the folder or a file in it cannot be made",
		false, "check space and rights of the work folder that the message names, then run it again",
	},
	{
		LaunchFailed, "STAGING_JOB or SUBMITTING_JOB: the program could not be started", false,
		"check that the program is there, may be executed (no file system with noexec lets it), and is for this " +
			"machine; in a script also what its #! line asks for",
	},
	{
		ProgramFailed, "the program ended with an exit code other than 0", false,
		"read what it wrote: pawl logs JOB, pawl logs --stderr JOB",
	},
	{
		ProgramKilled, "the program was ended by a signal", false,
		"look for memory or time limits of the machine and for who sent the signal, then run it again",
	},
	{ProgramLost, "the program is gone and left no exit code: its process was killed with its wrapper, or the " +
		"machine restarted", false, "run it again; retry.max_attempts in the job file allows more attempts"},
	{
		RanBefore, "the machine knows that the job's program ran and that its folder was cleaned, and the database " +
			"does not: it was restored to an earlier point in time", false,
		"look at the results where the message says that they are; if they are not what you need, run it again",
	},
	{TimeLimit, "the program ran longer than resources.minutes, and was ended; what there was is archived; or " +
		"the handler of a task took longer than it may at its last attempt", false, "give it more time (a " +
		"program in the job file, resources.minutes, 10 by default; a task where its handler is registered), or " +
		"let it go on from where it was"},
	{
		SchedulerRejected, "SUBMITTING_JOB: the scheduler of the system refuses the request", false,
		"correct what the message says in resources, then run it again",
	},
	{
		SchedulerTimeout, "the scheduler ended the program because its time was over; what there was is archived", false,
		"give it more time (resources.minutes), or let it go on from where it was",
	},
	{
		SchedulerOutOfMemory, "the scheduler ended the program because it used more memory than it asked for", false,
		"ask for more (resources.memory), then run it again",
	},
	{
		SchedulerCanceled, "the job was canceled in the scheduler, and not by Pawl", false,
		"ask who canceled it there; run it again if it is wanted after all",
	},
	{
		SchedulerNodeFail, "the scheduler lost a node of the job", false,
		"run it again; retry.max_attempts in the job file allows more attempts",
	},
	{
		SchedulerPreempted, "the scheduler ended the program for a job of higher priority", false,
		"run it again, or in a partition where jobs are not preempted",
	},
	{
		SchedulerDeadline, "the scheduler gave up the job at its deadline", false,
		"ask for less, or for a later deadline, then run it again",
	},
	{
		SchedulerRerun, "the scheduler ran the job again by itself, which rerun: fail does not allow", false,
		"look at what its program has done; then run it again; retry.max_attempts allows more attempts",
	},
	{
		OutputMissing, "ARCHIVING: a pattern of archive.required fits nothing that the program left", false,
		"read what the program wrote: pawl logs JOB; then correct the program, or the pattern",
	},
	{
		ArchiveExists, "PROCESSING_INPUTS or ARCHIVING: a file of the archive is there already", false,
		"archive to another folder, move away what is there, or set archive.overwrite; then run it again",
	},
	{ArchiveFailed, "ARCHIVING: a result cannot be copied, or the job's folder is gone", false, "take the results from " +
		"the job's folder, which pawl show JOB names; correct what the message says before it is run again"},
	{
		FilesystemFull, "any copy: no space left on the file system", true,
		"free space on the file system that the message names",
	},
	{
		FilesystemReadOnly, "any copy: the file system can only be read", true,
		"find out why: a file system that meets errors of its disk may have turned so by itself; then mount it anew",
	},
	{
		DiskQuotaExceeded, "any copy, or a launch: the user that runs Pawl may use no more of the file system", false,
		"remove what is needed no longer, or ask for a larger quota; then run it again",
	},
	{MachineExhausted, "any state: the machine gives Pawl no further descriptor, process or memory (EMFILE, " +
		"ENFILE, EAGAIN, ENOMEM, ENOBUFS)", true, "look at the limits of the user and of the service (ulimit -a; " +
		"LimitNOFILE and TasksMax of its unit) and at what uses them up"},
	{
		SystemDisabled, "before a launch: the system was disabled. Any state: a system that the job needs is gone", true,
		"wait until it is enabled again (pawl enable system NAME), make it again if it is gone, or run the job on " +
			"another one",
	},
	{
		AppDisabled, "said by handlers only, so far: the app was disabled", true,
		"wait until it is enabled again, or run another version",
	},
	{TenantSuspended, "said by handlers only, so far: the tenant was suspended", true, "ask an administrator"},
	{
		HostUnknown, "before anything is done on the host of a system: its name is not resolved", true,
		"correct host.address of the system (pawl get system NAME), or look at the name service",
	},
	{
		HostUnreachable, "PROCESSING_INPUTS or STAGING_INPUTS: the web server of an input cannot be reached, or its " +
			"name cannot be resolved; or before anything is done on the host of a system: there is no way to it", true,
		"check name, network and port of the host",
	},
	{HostRefused, "before anything is done on the host of a system: it refuses the connection", true, "look whether " +
		"its SSH server runs, and whether host.port of the system is right; a firewall refuses too"},
	{ConnectionTimeout, "before anything is done on the host of a system: it does not answer in time; or " +
		"PROCESSING_INPUTS or STAGING_INPUTS: there was no connection to the web server of an input in time, or no " +
		"answer", true, "look at the load of the host, at its network, and at firewalls on the way"},
	{AuthenticationFailed, "before anything is done on the host of a system: it takes none of the keys", true, "look " +
		"whether host.user and host.identities of the system are right, whether the account has the public key in its " +
		"authorized_keys, with no option before it that shuts you out (from=, expiry-time=), whether a certificate has run " +
		"out, and whether the agent runs and has its keys; the log of its sshd says why it refuses a key"},
	{FirstAuthenticationFailed, "the same, where this machine has never logged in with that account: it waits for a " +
		"few minutes only", true, "as for AUTHENTICATION_FAILED; pawl systems check NAME tries the login"},
	{
		HostKeyUnknown, "before anything is done on the host of a system: none of its keys is trusted yet", true,
		"compare its key with what its administrator says, and take it: pawl systems trust NAME",
	},
	{HostKeyChanged, "before anything is done on the host of a system: it has another key than those that are " +
		"trusted", true, "find out whether the host was set up anew; if so, take its new key: pawl systems trust NAME"},
	{LoginRequired, "before anything is done on the host of a system with via openssh: nobody is logged in, or the " +
		"connection has ended", true, "log in on the machine of host.from: pawl systems login NAME"},
	{
		ChannelRefused, "before anything is done on the host of a system: it grants no further session", true,
		"close sessions of the account, or raise MaxSessions of its SSH server",
	},
	{
		ConnectionLost, "while something was done on the host of a system: the connection broke off", true,
		"look at the network, whether the host was restarted, and at what ends sessions of the account there, such as " +
			"its limits (ulimit -a)",
	},
	{ShellBroken, "any state: the shell of the account on the host of a system does not answer as a shell does, or " +
		"cannot do what it is asked", true, "log in by hand, and look at the login files, the shell and the limits of the " +
		"account (ulimit -a), and at what takes the place of a shell (ForceCommand in its sshd_config, command= in " +
		"authorized_keys)"},
	{
		ToolsMissing, "before anything is done on the host of a system: it lacks programs that Pawl needs there", true,
		"ask an administrator of the host to install the packages that the message names",
	},
	{
		SchedulerUnavailable, "the scheduler of the system does not answer", true,
		"run sinfo on the host of the system, as its account does: if that does not answer either, ask an administrator of " +
			"the scheduler; if it does, PATH and SLURM_CONF may be missing in env of the system",
	},
	{
		SchedulerQuota, "SUBMITTING_JOB: the scheduler takes no more jobs of this account for now", true,
		"wait until some have ended; a limit in Pawl keeps jobs from coming so far: pawl limits set, or jobs of a " +
			"partition of the system",
	},
	{
		SchedulerPartitionUnavailable, "SUBMITTING_JOB: the partition is drained or inactive, and takes no jobs", true,
		"ask an administrator of the scheduler when it is up again, or run the job in another one " +
			"(resources.partition)",
	},
	{FilesUnavailable, "PROCESSING_INPUTS or STAGING_INPUTS: the web server of an input failed (http 5xx, 408), " +
		"or asked to come back later (429)", true, "look at the service that the message names"},
	{TransferInterrupted, "PROCESSING_INPUTS or STAGING_INPUTS: the connection to the web server of an input " +
		"broke off, or stood still", true, "look at the network, and at the service that the message names"},
	{TaskBlocked, "the handler found a condition that may clear", true, "look at what the message names"},
	{
		TaskFailed, "the handler returned an error at its last attempt", false,
		"read the errors of all attempts: pawl history JOB",
	},
	{
		TaskPanicked, "the handler panicked at its last attempt", false,
		"read the stack in the job's history and correct the handler",
	},
	{
		TaskStalled, "at the last attempt the handler did not say in time that it goes on", false,
		"find out where the handler hangs, or give its kind a longer time: Stall",
	},
	{
		ArgsUnreadable, "the processes that run the kind of the task cannot read its arguments: they are of a newer " +
			"version, or do not fit", true,
		"start a process of a build that can read them, or correct the arguments and submit the task again",
	},
	{Poison, "process after process died while it ran the job: twice beside others, and then three times while " +
		"the job ran alone, as the only suspect of its process", false, "find out what in it kills a process " +
		"(memory, a fatal error that no handler can catch): look at the log of the processes that pawl history " +
		"JOB names; correct it before it is run again"},
	{
		RecoveryLimit, "crashes, or conditions that blocked it, interrupted the job more often than allowed", false,
		"find out in its history what interrupts it before it is run again",
	},
	{
		RecoveryTimeout, "the condition that blocked the job did not clear in time", false,
		"wait until the condition is gone, then run it again",
	},
	{
		RecoveryGivenUp, "somebody gave up waiting for the condition that blocked the job", false,
		"run it again when the condition is gone",
	},
	{
		InternalError, "Pawl itself could not go on with this job", false,
		"report it with the output of pawl history JOB",
	},
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

// Recoverable reports whether c is a condition that may clear by itself.
func (c Code) Recoverable() bool {
	for _, i := range Codes {
		if i.Code == c {
			return i.Recoverable
		}
	}
	return false
}
