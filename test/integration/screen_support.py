"""Full-screen views on a real screen: tmux draws it, keys and the mouse go in, the terminal comes back."""

import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

from cli_support import ENVIRONMENT, MEMOIR, CommandTest, wait_for


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class ScreenTest(CommandTest):
    terminals = 0

    def tmux(self, *arguments):
        done = subprocess.run(
            ["tmux", "-S", str(self.dir / f"tmux-{self.terminals}"), "-f", "/dev/null", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=60,
        )
        return done.stdout

    def open_screen(self, *arguments, columns=80, rows=24, environment=None):
        """A terminal that says hello, runs `memoir ARGUMENTS` and says how it ended."""
        self.terminals += 1  # a server of its own: the one before may still be ending
        variables = shlex.join(f"{k}={v}" for k, v in (environment or {}).items())
        command = shlex.join([str(MEMOIR), *map(str, arguments)])
        script = f"stty -a > {self.dir}/before; echo hello; env {variables} {command}; echo ended with $?; "
        script += f"stty -a > {self.dir}/after; sleep 600"
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, "bash", "-c", script)
        self.addCleanup(self.tmux, "kill-server")

    def screen(self, *arguments):
        return self.tmux("capture-pane", "-p", *arguments)

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def click(self, row, column, button=0):
        """Press the mouse and let go (0 left, 64 and 65 the wheel); rows and columns count from 0."""
        # As terminals whose description is "screen" tell it; tmux passes it on as typed.
        reports = []
        for code in (button,) if button >= 64 else (button, 3):
            reports += [0x1B, 0x5B, 0x4D, 32 + code, 33 + column, 33 + row]
        self.tmux("send-keys", "-H", *[f"{byte:02x}" for byte in reports])

    def see(self, pattern, what=None):
        """Wait until the screen matches, and return it."""

        def seen():
            self.last = self.screen()
            return self.last if re.search(pattern, self.last, re.MULTILINE) else None

        try:
            return wait_for(seen, what or pattern, timeout_s=60)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen is:\n{self.last}") from None

    def line_with(self, text, *arguments):
        """The first line of the screen that has `text` in it, else ""."""
        return next((l for l in self.screen(*arguments).splitlines() if str(text) in l), "")

    def is_marked(self, text):
        """Is the line that has `text` in it shown as chosen?"""
        return re.search(r"\x1b\[(\d+;)*7m", self.line_with(text, "-e"))

    def assert_restored(self):
        """The shell's own screen is back, with the terminal as it was."""
        self.see("^ended with ")
        self.assertIn("hello", self.screen())
        wait_for(lambda: (self.dir / "after").exists() and (self.dir / "after").read_text(), "stty")
        self.assertEqual((self.dir / "before").read_text(), (self.dir / "after").read_text())

    def pid_of_view(self):
        """The process that draws, which may be a child of env's place."""
        shell = self.tmux("list-panes", "-F", "#{pane_pid}").strip()
        children = pathlib.Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii").split()
        return next(int(pid) for pid in children
                    if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "memoir\n")
