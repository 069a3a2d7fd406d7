"""An attempt as a Ray job: starts its ranks, watches them, and writes down how they ended.

    python launcher.py

It lies in the attempt's folder, which every node sees, beside `launch.json`, which says what to start.
One rank is a process of this one; several are each a process of an actor, in a placement group, so that
all of them start or none. What it is told comes as files: `stop`, `kill`, `checkpoint`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
POLL_SECONDS = 0.1
MEASURE_SECONDS = 5
SECRETS_SECONDS = 60


def now():
    return int(time.time() * 1000)


def put(name, text):
    """Writes a file that others see whole."""
    path = os.path.join(HERE, name)
    with open(path + ".part", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".part", path)


def told(name):
    return os.path.exists(os.path.join(HERE, name))


def used(session):
    """What the processes of a session use."""
    tick, page = 1000 // os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    cpu = memory = read = written = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                # A name may have anything in it, and stands in brackets.
                fields = file.read().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            cpu += sum(map(int, fields[11:15])) * tick
            memory += int(fields[21]) * page
            with open(f"/proc/{pid}/io") as file:
                numbers = dict(line.split(": ") for line in file)
            read += int(numbers["read_bytes"])
            written += int(numbers["write_bytes"])
        except (OSError, ValueError, KeyError, IndexError):
            pass
    return cpu, memory, read, written


def die_with_parent():
    """A rank does not outlive what watches it."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


WATCHER = """
import os, signal, sys
group, attempt, rank = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if sys.stdin.buffer.read() == b"done":
    sys.exit()
try:
    os.killpg(group, signal.SIGKILL)
except OSError:
    pass
wanted = {f"FALAJ_ATTEMPT={attempt}".encode(), f"FALAJ_RANK={rank}".encode()}
for _ in range(20):
    left = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted <= set(file.read().split(b"\\0")):
                    os.kill(int(pid), signal.SIGKILL)
                    left = True
        except OSError:
            pass
    if not left:
        break
"""


def watcher(group, attempt, rank):
    """A process that outlives this one long enough to kill what a rank has started, should this one be
    killed: it hears of that by the end of its input. A rank itself is killed by the kernel, its children
    are not."""
    return subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(group), attempt, str(rank)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )


class Rank:
    """One rank. All of its methods return at once."""

    def __init__(self, here, launch, secrets, rank):
        self.here, self.launch, self.secrets, self.rank = here, launch, secrets, rank
        self.process, self.end, self.watcher = None, None, None
        self.usage, self.measured_next = None, time.monotonic() + 1

    def host(self):
        try:
            import ray

            return ray.util.get_node_ip_address()
        except Exception:
            import socket

            return socket.gethostname()

    def devices(self):
        """The GPUs that Ray gave it."""
        own = self.launch["ranks"][self.rank]["gpus"]
        return os.environ.get("CUDA_VISIBLE_DEVICES", "") if own else ""

    def start(self, first_host, devices):
        launch, place = self.launch, self.launch["ranks"][self.rank]
        # What Ray set for this process is not meant for what it starts, but for the GPUs.
        kept = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env.update(launch["env"])
        env.update(self.secrets)
        env["CUDA_VISIBLE_DEVICES"] = devices[self.rank]
        env.update(place["env"])
        env["FALAJ_ATTEMPT"], env["FALAJ_RANK"] = launch["attempt"], str(self.rank)
        if env.get("MASTER_ADDR") and env["MASTER_ADDR"] == launch["ranks"][0]["node"]:
            env["MASTER_ADDR"] = first_host
        self.secrets = None
        log = os.open(os.path.join(self.here, f"rank-{self.rank}.log"), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        folder = launch["folder"] or os.path.join(self.here, "work")
        program = launch["command"][0]
        try:
            if not os.path.isdir(folder):
                raise OSError(f"folder: `{folder}` is not there, or is no folder")
            if not shutil.which(program, path=env.get("PATH")):
                raise OSError("not found")
            self.process = subprocess.Popen(
                launch["command"], env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent,
            )
            self.watcher = watcher(self.process.pid, launch["attempt"], self.rank)
        except OSError as error:
            os.write(log, f"falaj: cannot start `{program}`: {error}\n".encode())
            self.end = f"not-started {now()}"
        finally:
            os.close(log)

    def measure(self, over):
        """Writes down what the processes of its session use: thousandths of a second of CPU, bytes of memory now
        and at most, bytes read and written. What those used that are gone is not lost: numbers only grow."""
        if not over and time.monotonic() < self.measured_next:
            return
        self.measured_next = time.monotonic() + MEASURE_SECONDS
        cpu, memory, read, written = (0, 0, 0, 0) if over else used(self.process.pid)
        if over:
            # What the kernel counted, of those too that nobody saw.
            import resource

            spent = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = int((spent.ru_utime + spent.ru_stime) * 1000)
        last = self.usage
        if last is None and over:
            return
        grown = [max(pair) for pair in zip(last or (0, 0, 0, 0), (cpu, memory, read, written))]
        self.usage = grown
        path = os.path.join(self.here, f"rank-{self.rank}.usage")
        try:
            with open(path + ".part", "w") as file:
                file.write(f"{grown[0]} {memory} {grown[1]} {grown[2]} {grown[3]}\n")
            os.rename(path + ".part", path)
        except OSError:
            pass

    def poll(self):
        if self.end is None and self.process is not None:
            code = self.process.poll()
            self.measure(code is not None)
            if code is not None:
                self.signal(signal.SIGKILL)
                self.end = f"signal {-code} {now()}" if code < 0 else f"exit {code} {now()}"
                self.unwatch()
        return self.end

    def unwatch(self):
        try:
            self.watcher.communicate(b"done", timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            pass

    def signal(self, number):
        if self.process is None or self.end is not None:
            return
        try:
            if number == signal.SIGUSR1:
                self.process.send_signal(number)
            else:
                os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class Gang:
    """All ranks, wherever they are."""

    def __init__(self, launch, secrets):
        self.launch = launch
        count = len(launch["ranks"])
        self.ends = [None] * count
        if count == 1:
            self.remote, self.ranks = None, [Rank(HERE, launch, secrets, 0)]
        else:
            self.remote, self.ranks = self.place(secrets)

    def place(self, secrets):
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        launch, bundles, where = self.launch, [], []
        for rank, node in zip(launch["ranks"], nodes_of(launch)):
            # Ranks of one node share a bundle, and bundles lie on different nodes.
            if node == len(bundles):
                bundles.append({})
            where.append(node)
            for name, amount in resources(launch, rank).items():
                bundles[-1][name] = bundles[-1].get(name, 0) + amount
        strategy = "STRICT_SPREAD" if len(bundles) > 1 else "STRICT_PACK"
        group = placement_group(bundles, strategy=strategy)
        waiting = False
        while not group.wait(0.5):
            if not waiting:
                put("waiting", f"{len(bundles)} nodes with {bundles[0]} each are not free at once")
                waiting = True
            if told("stop") or told("kill"):
                return ray, []
        ranks = []
        for number, rank in enumerate(launch["ranks"]):
            needs = resources(launch, rank)
            actor = ray.remote(Rank).options(
                num_cpus=needs.get("CPU", 0), num_gpus=needs.get("GPU", 0), memory=needs.get("memory"),
                max_restarts=0, scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=where[number]),
            )
            ranks.append(actor.remote(HERE, launch, secrets, number))
        return ray, ranks

    def ask(self, method, *arguments):
        """The same of every rank; `None` from those that are gone."""
        if self.remote is None:
            return [getattr(rank, method)(*arguments) for rank in self.ranks]
        calls = [getattr(rank, method).remote(*arguments) for rank in self.ranks]
        answers = []
        for number, call in enumerate(calls):
            try:
                answers.append(self.remote.get(call, timeout=60))
            except Exception:
                # Its node or its actor is gone, and what it ran with them.
                answers.append(None)
                if self.ends[number] is None:
                    self.ends[number] = f"signal 9 {now()}"
        return answers

    def poll(self):
        for number, end in enumerate(self.ask("poll")):
            if end is not None:
                self.ends[number] = end
        return all(self.ends)

    def failed(self):
        return any(end and not end.startswith("exit 0 ") for end in self.ends)


def nodes_of(launch):
    """The number of the node of each rank; those of a node stand together."""
    numbers, last = [], None
    for rank in launch["ranks"]:
        numbers.append(numbers[-1] + (rank["node"] != last) if numbers else 0)
        last = rank["node"]
    return numbers


def shown(launch, devices):
    """The GPUs that each rank sees: its own, or all that the ranks of its node have, in one order."""
    own = [text or "" for text in devices]
    if not launch["shares_gpus"]:
        return own
    together = {}
    for node, text in zip(nodes_of(launch), own):
        together.setdefault(node, set()).update(filter(None, text.split(",")))
    # As numbers where they are.
    ordered = {node: sorted(all, key=lambda one: (len(one), one)) for node, all in together.items()}
    return [",".join(ordered[node]) for node in nodes_of(launch)]


def resources(launch, rank):
    limits = launch["limits"]
    # An actor without a CPU would not be placed by its bundle.
    needs = {"CPU": limits["cpu_millis"] / 1000 if limits["cpu_millis"] else 0.01}
    if limits["memory_mib"]:
        needs["memory"] = limits["memory_mib"] << 20
    if rank["gpus"]:
        needs["GPU"] = len(rank["gpus"])
    return needs


def finish(ends, timed_out, stopped=True):
    lines = [f"rank {number} {end}" for number, end in enumerate(ends) if end]
    lines += ["timed-out"] * timed_out
    # Ranks that ended by themselves before they were told to are done, whatever was asked for meanwhile.
    lines += ["told"] if stopped else [f"untold {number}" for number in range(len(ends))]
    put("exit", "\n".join([*lines, f"ended {now()}", ""]))


def secrets(launch):
    """Read once; nobody needs the file after that. `None` if it does not come."""
    path = os.path.join(HERE, "secrets.json")
    until = time.monotonic() + SECRETS_SECONDS
    while launch["has_secrets"]:
        try:
            with open(path) as file:
                found = json.load(file)
            os.unlink(path)
            # What a server that died while it wrote them has left.
            for name in os.listdir(HERE):
                if name.startswith(".secrets.json."):
                    os.unlink(os.path.join(HERE, name))
            return found
        except FileNotFoundError:
            # A server that did not hear that Ray took the job comes again, and brings them.
            if time.monotonic() >= until or told("stop") or told("kill"):
                return None
            time.sleep(POLL_SECONDS)
    return {}


def main():
    try:
        # Of several that are started for this attempt, one starts anything, and that once.
        os.symlink(os.environ.get("RAY_JOB_ID", str(os.getpid())), os.path.join(HERE, "owner"))
    except FileExistsError:
        return
    with open(os.path.join(HERE, "launch.json")) as file:
        launch = json.load(file)
    if told("stop") or told("kill"):
        return finish([], False)
    hidden = secrets(launch)
    if hidden is None:
        with open(os.path.join(HERE, "rank-0.log"), "a") as log:
            log.write("falaj: the secrets of this job did not arrive\n")
        return finish([f"not-started {now()}"], False)
    gang = Gang(launch, hidden)
    if not gang.ranks or told("stop") or told("kill"):
        return finish([], False)
    hosts = gang.ask("host")
    put("started-at", str(now()))
    begun = time.monotonic()
    gang.ask("start", hosts[0], shown(launch, gang.ask("devices")))

    limit = launch["time_ms"] / 1000 if launch["time_ms"] is not None else None
    kill_at, timed_out, stopped, checkpoint = None, False, False, None
    while not gang.poll():
        at = time.monotonic()
        if kill_at is None:
            grace = None
            if gang.failed():
                grace = launch["gang_grace_ms"] / 1000
            elif told("stop"):
                stopped, grace = True, launch["grace_ms"] / 1000
            elif limit is not None and at - begun >= limit:
                timed_out, grace = True, launch["grace_ms"] / 1000
            if grace is not None:
                kill_at = at + grace
                gang.ask("signal", signal.SIGTERM)
        stopped = stopped or told("kill")
        if told("kill") or (kill_at is not None and at >= kill_at):
            gang.ask("signal", signal.SIGKILL)
        try:
            asked = os.stat(os.path.join(HERE, "checkpoint")).st_mtime_ns
        except FileNotFoundError:
            asked = None
        if asked != checkpoint:
            checkpoint = asked
            if kill_at is None:
                gang.ask("signal", signal.SIGUSR1)
        time.sleep(POLL_SECONDS)
    finish(gang.ends, timed_out, stopped)


if __name__ == "__main__":
    sys.exit(main())
