"""A file system with one file, `mute`, whose bytes never come: whoever touches a mapping of it waits for good. With `mute_all` set,
nothing is answered any more, also not what the file is.

As any user can mount one (FUSE); spoken here without a library, as root. What is served is just enough to open the
file and to map it.
"""

import ctypes
import errno
import os
import pathlib
import stat
import struct
import tempfile
import threading

LOOKUP, GETATTR, OPEN, READ, RELEASE, INIT, FORGET, INTERRUPT, DESTROY = 1, 3, 14, 15, 18, 26, 2, 36, 38
MNT_DETACH = 2
FILE_NODE, FILE_BYTES = 2, 1 << 20

libc = ctypes.CDLL(None, use_errno=True)


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
    return struct.pack("<6Q10I", node, FILE_BYTES, FILE_BYTES // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


class MuteFiles:
    """Usable if `error` is None."""

    def __init__(self, name="mute", folder=None):
        self.error = None
        self.made = folder is None
        self.name = name
        self.mute_all = False
        self.folder = folder or pathlib.Path(tempfile.mkdtemp(prefix="memoir-mute-"))
        self.asked = threading.Event()  # somebody waits for bytes
        try:
            self.fd = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            self.error = str(error)
            self.folder_remove()
            return
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"mute", bytes(self.folder), b"fuse", 0, options) < 0:
            self.error = os.strerror(ctypes.get_errno())
            self.close(mounted=False)
            return
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self, mounted=True):
        """All that wait get an error."""
        if mounted:
            libc.umount2(bytes(self.folder), MNT_DETACH)
        os.close(self.fd)
        self.folder_remove()

    def folder_remove(self):
        if self.made:
            os.rmdir(self.folder)

    def answer(self, unique, data=b"", error=0):
        os.write(self.fd, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 18)
                self.handle(request)
            except OSError:
                return

    def handle(self, request):
        _, kind, unique, node = struct.unpack_from("<IIQQ", request)
        if self.mute_all and kind not in (FORGET, INIT, INTERRUPT, DESTROY, RELEASE):
            self.asked.set()
        elif kind == READ:
            self.asked.set()
        elif kind == INIT:
            self.answer(unique, struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 0, 0, *[0] * 8))
        elif kind == LOOKUP:
            if request[40:] == self.name.encode() + b"\0":
                self.answer(unique, struct.pack("<4Q2I", FILE_NODE, 1, 3600, 0, 0, 0) + attributes(FILE_NODE))
            else:
                self.answer(unique, error=errno.ENOENT)
        elif kind == GETATTR:
            self.answer(unique, struct.pack("<Q2I", 0, 0, 0) + attributes(node))
        elif kind == OPEN:
            self.answer(unique, struct.pack("<Q2I", 1, 0, 0))
        elif kind == RELEASE:
            self.answer(unique)
        elif kind not in (FORGET, INTERRUPT, DESTROY):
            self.answer(unique, error=errno.ENOSYS)
