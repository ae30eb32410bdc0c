"""Claims tasks of kind "sum" and adds up numbers. Killed, another worker goes on from its checkpoint."""
import json, os, secrets, socket, sys, threading, time, urllib.error, urllib.request

URL, TOKEN = os.environ["PAWL_URL"], os.environ.get("PAWL_TOKEN", "")
LEASE = int(os.environ.get("LEASE", 15))  # seconds for which it may be silent
SECRET = secrets.token_hex(32)  # its own: no other worker can speak for it
running, stopped = set(), set()  # the tasks in its hands, and those that it must stop, by id and epoch


def call(verb, **body):
    headers = {"Authorization": "Bearer " + TOKEN, "Pawl-Worker": SECRET, "Content-Type": "application/json"}
    request = urllib.request.Request(URL + "/v1/claims" + verb, json.dumps(body, allow_nan=False).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except OSError as error:
            problem = json.load(error) if isinstance(error, urllib.error.HTTPError) else {}
            if "jobs" in problem:  # 409: some of them are refused
                return problem
            if problem and error.code not in (429, 503):  # such as 409, because its session has ended: start it again
                print(problem["detail"], file=sys.stderr, flush=True)
                os._exit(1)
        time.sleep(1)  # the service is away or busy: every call can be repeated


def tell(verb, job, **what):
    answer = call("/" + verb, jobs=[{"id": job["id"], "epoch": job["epoch"], **what}])
    stopped.update((a["id"], a["epoch"]) for a in answer["jobs"] if a.get("stop"))


def renew():
    while True:
        time.sleep(LEASE / 3)
        answer = call("/renew", lease=f"{LEASE}s", jobs=[{"id": id, "epoch": epoch} for id, epoch in list(running)])
        stopped.update((a["id"], a["epoch"]) for a in answer["jobs"] if a.get("stop"))


def work(job):
    state, numbers = job.get("checkpoint", {"done": 0, "sum": 0}), job["args"]["numbers"]
    for number in numbers[(began := state["done"]) :]:
        time.sleep(job["args"].get("pause", 0))
        state = {"done": state["done"] + 1, "sum": state["sum"] + number}
        tell("checkpoint", job, checkpoint=state)
        tell("progress", job, done=state["done"], total=len(numbers))
        if (job["id"], job["epoch"]) in stopped:
            return tell("release", job)  # as if it had never been claimed
    tell("finish", job, result={"sum": state["sum"], "began": began})


threading.Thread(target=renew, daemon=True).start()
me = dict(worker="python", host=socket.gethostname(), pid=os.getpid(), lease=f"{LEASE}s")
while True:
    for job in call("", kinds=["sum"], slots=1, wait="30s", **me)["jobs"]:
        running.add((job["id"], job["epoch"]))
        try:
            work(job)
        except Exception as error:  # the job is tried again, as its kind says; the worker goes on
            tell("fail", job, message=repr(error))
        running.remove((job["id"], job["epoch"]))
