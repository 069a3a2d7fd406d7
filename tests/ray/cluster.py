"""A Ray cluster of three nodes on this machine, for tests.

    python cluster.py FOLDER PORT

Ray listens on every interface and takes no password, so it lives in a network of its own that has
nothing but loopback; a port of this machine's loopback leads to its dashboard. It lives in a process
namespace of its own as well: when this process ends, all of Ray does. Both need root.

The port is taken at once. Ray is started when somebody first comes to it, and answers when all nodes
are there: most who have it beside them do not need it.
"""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading

DASHBOARD = 8265
NODES = 3
CPUS, GPUS = 4, 4


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def outside(folder, port):
    """Takes the port where the tests are, and lets it be served inside."""
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", sys.executable]
    inside = [os.path.abspath(__file__), folder, str(port), str(listener.fileno())]
    # It does not listen to polite signals while it has a child; this process does, and kills it.
    child = subprocess.Popen(command + inside, pass_fds=[listener.fileno()], preexec_fn=die_with_parent)
    listener.close()
    signal.signal(signal.SIGTERM, lambda *_: child.kill())
    signal.signal(signal.SIGINT, lambda *_: child.kill())
    sys.exit(child.wait())


def loopback_up():
    """What `ip link set lo up` does."""
    get, put, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, get, asked))[1]
        fcntl.ioctl(any_socket, put, struct.pack("16sh14x", b"lo", flags | up))


def start(folder):
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    # Jobs find Ray's own Python first.
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    env = dict(os.environ, PATH=path, RAY_DISABLE_IMPORT_WARNING="1")
    common = [
        f"--num-cpus={CPUS}", f"--num-gpus={GPUS}", "--object-store-memory=80000000", "--disable-usage-stats",
    ]
    head = ["--head", "--port=26379", "--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD}",
            f"--temp-dir={folder}"]
    subprocess.run([ray, "start", *head, *common], env=env, check=True, stdin=subprocess.DEVNULL)
    for node in range(1, NODES):
        first = 20002 + node * 1000
        ports = [f"--min-worker-port={first}", f"--max-worker-port={first + 900}",
                 f"--dashboard-agent-listen-port={52365 + node}"]
        subprocess.run([ray, "start", "--address=127.0.0.1:26379", *ports, *common], env=env, check=True,
                       stdin=subprocess.DEVNULL)


def pass_on(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def serve(client):
    with client, socket.create_connection(("127.0.0.1", DASHBOARD)) as ray:
        back = threading.Thread(target=pass_on, args=(ray, client), daemon=True)
        back.start()
        pass_on(client, ray)
        back.join()


def inside(folder, listener):
    loopback_up()
    select.select([listener], [], [])
    start(folder)
    # The first process of its namespace: others' orphans are its own, and are let go.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    if len(sys.argv) == 4:
        inside(sys.argv[1], socket.socket(fileno=int(sys.argv[3])))
    else:
        outside(sys.argv[1], int(sys.argv[2]))
