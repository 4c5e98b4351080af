"""A memoir-observe that a test starts, asks and ends, whatever it observes."""

import json
import os
import pathlib
import select
import signal
import socket
import subprocess

BUILD = pathlib.Path(os.environ["MEMOIR_BUILD_ROOT"])
OBSERVE = BUILD / "src/observe/memoir-observe"
PATIENCE_S = 60


def why_not():
    """Why no probe can be attached here, or None."""
    if not OBSERVE.exists():
        return "built without BPF"
    if os.geteuid() != 0:
        return "needs root"
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        return "needs the initial PID namespace"
    return None


class ObserverProcess:
    def launch(self, log, *options, prefix=()):
        """Start it, and wait until it is ready: RuntimeError with its log if it is not."""
        read_end, write_end = os.pipe()
        with open(log, "a") as file:
            self.process = subprocess.Popen([*prefix, str(OBSERVE), "--socket", self.socket, "--ready", str(write_end), *options],
                                            pass_fds=[write_end], stderr=file)
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            if not select.select([ready], [], [], PATIENCE_S)[0] or ready.readline().strip() != "ready":
                self.process.kill()
                self.process.wait()
                raise RuntimeError("memoir-observe did not start: " + pathlib.Path(log).read_text())

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE_S)
            s.connect(self.socket)
            with s.makefile("rwb") as f:
                f.write(request.encode() + b"\n")
                f.flush()
                word, rest = f.readline().decode().split(None, 1)
                if word != "ok":
                    raise RuntimeError(rest.strip())
                return f.read(int(rest))

    def status(self):
        return json.loads(self.ask("status"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE_S)
