"""cuda_drive on the stand-in driver, stepped by tests; and the stand-in's libnvidia-ml."""

import ctypes
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT", "build/release")).resolve()
STANDIN = BUILD / "src/standin"
DRIVE = BUILD / "test/cuda/cuda_drive"
TRAIN = BUILD / "src/standin/cuda_train"
MIB = 1 << 20
PATIENCE_S = 120  # a limit for a broken program, never a wait


def environment(folder, **more):
    """What a program needs to find the stand-in, with its shared files in `folder`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MEMOIR_STANDIN", "CUDA_"))}
    return {**kept, "LD_LIBRARY_PATH": str(STANDIN), "MEMOIR_STANDIN_DIR": str(folder), **more}


def pin_model(staged=0):
    """The stand-in's own times (standin/timing.c), as a calibration has them. Staging at `staged` bytes a nanosecond with two threads; 0: not measured."""
    def table(fixed, rate):
        return " ".join(str(fixed + (1 << shift) // rate) if rate else "0" for shift in range(14, 31))
    stages = [f"staged-{threads}-{to}-device " + table(30000, staged if threads == 2 else 0) for threads in (1, 2, 4, 8) for to in ("to", "from")]
    return "\n".join([
        "pageable-to-device " + table(16000, 12), "pageable-from-device " + table(16000, 12),
        "pinned-to-device " + table(9000, 55), "pinned-from-device " + table(9000, 55),
        "register " + table(60000, 60), "unregister " + table(40000, 60), *stages, "touch-mib 570000", "end", ""])


class Drive:
    """A running cuda_drive. `first` is its answer to cuInit()."""

    def __init__(self, folder, way="name", prefix=(), **more):
        self.process = subprocess.Popen([*prefix, str(DRIVE), way], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment(folder, **more))
        self.first = self.answer()

    @property
    def pid(self):
        return self.first["pid"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"cuda_drive ended with {self.process.wait(PATIENCE_S)}")
        return json.loads(line)

    def __call__(self, *words):
        """The answer to one command."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer

    def ok(self, *words):
        answer = self(*words)
        if answer["result"] != 0:
            raise AssertionError(f"{words}: {answer}")
        return answer

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()


class CudaTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def drive(self, way="name", **more):
        drive = Drive(self.folder, way, **more)
        self.addCleanup(drive.close)
        return drive


class ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """libnvidia-ml of the stand-in, in this process."""

    def __init__(self, folder):
        os.environ["MEMOIR_STANDIN_DIR"] = str(folder)
        self.lib = ctypes.CDLL(str(STANDIN / "libnvidia-ml.so.1"))
        if self.lib.nvmlInit_v2() != 0:
            raise AssertionError("nvmlInit_v2")

    def close(self):
        self.lib.nvmlShutdown()
        del os.environ["MEMOIR_STANDIN_DIR"]

    def device(self, index):
        handle = ctypes.c_void_p()
        if self.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            raise AssertionError("nvmlDeviceGetHandleByIndex_v2")
        return handle

    def memory(self, index):
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        if self.lib.nvmlDeviceGetMemoryInfo_v2(self.device(index), ctypes.byref(memory)) != 0:
            raise AssertionError("nvmlDeviceGetMemoryInfo_v2")
        return memory

    def processes(self, index):
        """PID -> used bytes."""
        count = ctypes.c_uint(64)
        infos = (ProcessInfo * 64)()
        if self.lib.nvmlDeviceGetComputeRunningProcesses_v3(self.device(index), ctypes.byref(count), infos) != 0:
            raise AssertionError("nvmlDeviceGetComputeRunningProcesses_v3")
        return {infos[i].pid: infos[i].used for i in range(count.value)}
