"""memoir flame --browse on a real screen: choosing, zooming, searching."""

import re
import subprocess

from cli_support import ENVIRONMENT, LIBRARY, memoir
from screen_support import ScreenTest
from sites_support import CLIENT


class Browse(ScreenTest):
    def setUp(self):
        super().setUp()
        self.client = subprocess.Popen(
            [CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=ENVIRONMENT | {"MEMOIR_DIR": str(self.dir), "LD_LIBRARY_PATH": str(LIBRARY), "MEMOIR_STACKS": "all"},
        )
        self.addCleanup(self.end_client, self.client)
        self.assertEqual(self.client.stdout.readline(), b"ready\n")
        self.tell(self.client, "left 1 40000", "right 2 20000", "inlined 3 20000", "direct 4 20000")

    def open(self, *arguments, **screen):
        self.open_screen("flame", self.client.pid, "--browse", "--dir", self.dir, *arguments, **screen)
        self.see("arrows choose")

    def choose(self, *keys, seen):
        self.press(*keys)
        self.see(rf"^{seen} .*\n(arrows|/).*\n*\Z")

    def test_arrows_choose_and_enter_zooms(self):
        self.open()
        screen = self.see(r"^▏obey  100\.0 kB  100\.0 %")
        self.assertRegex(screen.splitlines()[0], rf"^sites_client \(PID {self.client.pid}\)  all  100\.0 kB")
        names = re.findall(r"^▏(\S+)", screen, re.MULTILINE)
        depth = names.index("obey") - names.index("all")
        self.choose(*["Down"] * depth, seen="obey")
        self.choose("Down", seen="path_left")
        self.choose("Right", seen="path_direct")
        self.choose("Left", seen="path_left")
        self.choose("Up", seen="obey")
        self.choose("Down", seen=r"path_left  40\.0 kB  40\.0 %")
        self.press("Enter")
        self.see(r"^▏path_left  40\.0 kB  40\.0 % *\n▏ask  40\.0 kB  40\.0 % *$")
        self.assertNotIn("path_right", self.screen())
        self.press("Escape")
        self.see(r"^▏obey [\s\S]*▏path_right")
        self.press("Home")
        self.see(r"^▏all ")
        self.press("q")
        self.see("^ended with 0$")
        self.assert_restored()

    def test_searching(self):
        self.open()
        self.press("/")
        self.type("RIGHT$")
        self.see(r"^/RIGHT\$_")
        self.choose("Enter", seen="path_right")
        self.see(r"^sites_client .* 1 found")
        self.press("/")
        self.type("^ask")
        self.choose("Enter", seen="ask")
        self.see(r"^sites_client .* 3 found")
        self.press("/")
        self.type("(")
        self.press("Enter")
        self.see("that is no regular expression")
        self.press("/")
        self.type("nowhere")
        self.press("Enter")
        self.see("nothing found")

    def test_the_mouse(self):
        self.open()
        lines = self.see(r"▏path_left").splitlines()
        row = next(i for i, line in enumerate(lines) if "▏path_left" in line)
        self.click(row, lines[row].index("▏path_right") + 2)
        self.see(r"^path_right  20\.0 kB .*\narrows.*\n*\Z")

    def test_other_screens(self):
        self.open(columns=40, rows=8, environment={"LC_ALL": "C", "TERM": "vt100"})
        self.see(r"^>all  100\.0 kB")
        self.tmux("resize-window", "-x", "60", "-y", "20")
        self.see(r"^\|path_left")
        self.press("q")
        self.see("^ended with 0")  # this one has no second screen to come back from

    def test_it_needs_a_screen(self):
        done = memoir("flame", str(self.client.pid), "--dir", self.dir, "--browse", check=1)
        self.assertIn("needs a terminal", done.stderr)
        memoir("flame", str(self.client.pid), "--dir", self.dir, "--browse", "--text", check=2)
