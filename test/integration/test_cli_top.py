"""memoir top: tables for programs, and the full screen with keys, mouse, resizing and every way out."""

import csv
import datetime
import io
import json
import os
import pathlib
import pwd
import re
import shlex
import signal
import subprocess
import sys

from cli_support import BUILD, DRAM, ENVIRONMENT, HEAP, MEMOIR, SCRIPTED, CommandTest, memoir, wait_for
from screen_support import ScreenTest

HOLD = "import sys; x = bytearray(int(sys.argv[1])); x[::4096] = b'x' * len(x[::4096]); __import__('os').write(1, b'ready\\n'); sys.stdin.read()"


class TopTest:
    def hold(self, megabytes, *words):
        """A process with so much resident memory, and `words` in its command line."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(megabytes << 20), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
        )
        self.addCleanup(self.end_client, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def tag(self):
        """A word that no other process on the machine has in its command line."""
        return self.dir.name.replace("memoir-test-cli-", "tag-")


class Tables(TopTest, CommandTest):
    def top(self, *arguments, check=0):
        done = memoir("top", "--json", "--dir", self.dir, *arguments, check=check)
        return json.loads(done.stdout)

    def test_json_has_every_process(self):
        holder = self.hold(20, self.tag())
        document = self.top()
        self.assertEqual((document["schema"], document["table"]), ("memoir.query/1", "host"))
        row = next(p for p in document["rows"] if p["pid"] == holder.pid)
        self.assertGreater(row["rss"], 20 << 20)
        self.assertEqual(row["parent"], os.getpid())
        self.assertEqual(row["user"], pwd.getpwuid(os.getuid()).pw_name)
        self.assertIn(self.tag(), row["command"])
        self.assertIsNone(row["heap"])  # it keeps no book: unknown, not 0
        self.assertIsNone(row["growth"])
        self.assertEqual(row["tracked"], "no: not asked")
        self.assertGreater(row["pss"], 20 << 20)
        (row,) = self.top("--where", f"pid={holder.pid}", "--show", "pss,uss")["rows"]
        self.assertGreaterEqual(row["pss"], row["uss"])

    def test_books_are_joined_to_their_processes(self):
        client = self.start_scripted("device 0 Card-A 100000000 1000000", f"alloc 0 {DRAM} 1 25000000",
                                     f"alloc -1 {HEAP} 2 3000000")
        rows = self.top("--tracked")["rows"]
        self.assertEqual([(p["pid"], p["device"], p["heap"]) for p in rows],
                         [(client.pid, 25000000, 3000000)])

    def test_looks_that_follow_each_other_quickly_show_what_changes(self):
        self.check_looks("top", "--tracked", "--number", "100000", "--interval", "100ms")

    def test_the_same_of_books_alone(self):
        self.check_looks("ps", "--watch=0.1")

    def check_looks(self, *arguments):
        clients = [self.start_scripted(f"alloc -1 {HEAP} 0 1000") for _ in range(4)]
        command = [MEMOIR, *arguments, "--json", "--show", "pid,heap", "--dir", self.dir]
        top = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ENVIRONMENT)
        self.addCleanup(top.wait)
        self.addCleanup(top.kill)
        self.addCleanup(top.stdout.close)

        def look():
            document = json.loads(top.stdout.readline())
            return document["time"], {row["pid"]: row["heap"] for row in document["rows"]}

        def next_look():
            """The first look that began after now: the one after the first that is of later."""
            now = datetime.datetime.now(datetime.timezone.utc).isoformat()[:23]
            wait_for(lambda: look()[0] > now, "a later look")
            return look()[1]

        wanted = {client.pid: 1000 for client in clients}
        self.assertEqual(look()[1], wanted)
        for number in range(1, 6):  # books that are known: at once
            self.tell(clients[0], f"alloc -1 {HEAP} {number} 500")
            wanted[clients[0].pid] += 500
            self.assertEqual(next_look(), wanted)
        for client in clients:
            client.kill()
            client.wait()
            del wanted[client.pid]
            self.assertEqual(next_look(), wanted)
        late = self.start_scripted(f"alloc -1 {HEAP} 0 7000")  # a new one: soon
        wait_for(lambda: look()[1] == {late.pid: 7000}, "the new book")

    def test_filter_sort_and_limit(self):
        small, large = self.hold(5, self.tag()), self.hold(40, self.tag())
        pids = lambda *a: [p["pid"] for p in self.top("--filter", self.tag(), *a)["rows"]]
        self.assertEqual(pids(), [large.pid, small.pid])
        self.assertEqual(pids("--sort", "+rss"), [small.pid, large.pid])
        self.assertEqual(pids("--sort", "+pid"), sorted([small.pid, large.pid]))
        self.assertEqual(pids("--limit", "1"), [large.pid])
        self.assertEqual([p["pid"] for p in self.top("--filter", str(small.pid), "--sort", "+pid")["rows"]
                          if p["pid"] == small.pid], [small.pid])

    def test_text_and_csv(self):
        holder = self.hold(20, self.tag())
        text = memoir("top", "--once", "--filter", self.tag(), "--dir", self.dir, check=0).stdout
        self.assertRegex(text, r"(?m)^Memory [\d.]+ [GT]B")
        self.assertRegex(text, rf"(?m)^ *{holder.pid}  \S+ +\S+ +[\d.]+ MB ")
        rows = list(csv.DictReader(io.StringIO(
            memoir("top", "--csv", "--filter", self.tag(), "--dir", self.dir, check=0).stdout)))
        self.assertEqual([int(r["pid"]) for r in rows], [holder.pid])
        self.assertGreater(int(rows[0]["rss"]), 20 << 20)
        self.assertEqual(rows[0]["heap"], "")
        # A pipe gets one table without being asked for it.
        self.assertIn(str(holder.pid), memoir("top", "--filter", self.tag(), "--dir", self.dir, check=0).stdout)

    def test_a_tree_has_the_sums_of_families(self):
        script = f'"$@" & "$@" & wait # {self.tag()}'
        program = [sys.executable, "-c", HOLD.replace("sys.stdin.read()", "__import__('signal').pause()"),
                   str(10 << 20), self.tag()]
        parent = subprocess.Popen(["bash", "-c", script, "bash", *program], stdout=subprocess.PIPE,
                                  env=ENVIRONMENT, start_new_session=True)
        self.addCleanup(parent.stdout.close)
        self.addCleanup(parent.wait)
        self.addCleanup(os.killpg, parent.pid, signal.SIGKILL)
        for _ in range(2):
            self.assertEqual(parent.stdout.readline(), b"ready\n")
        rows = {p["pid"]: p for p in self.top("--tree", "--filter", self.tag())["rows"]}
        family = [p for p in rows.values() if p["parent"] == parent.pid]
        self.assertEqual(len(family), 2)
        text = memoir("top", "--once", "--tree", "--filter", self.tag(), "--dir", self.dir, check=0).stdout
        line = lambda pid: next(l for l in text.splitlines() if l.split()[:1] == [str(pid)])
        name = lambda pid: re.match(r" *\d+  \S+( +)\S", line(pid))[1]
        self.assertGreater(len(name(family[0]["pid"])), len(name(parent.pid)))

    def test_names_cannot_do_anything_to_a_terminal(self):
        evil = self.copy_of(SCRIPTED, "evil\x1b[31m\nx\x9by")
        client = self.start_scripted(program=evil)
        done = memoir("top", "--once", "--filter", str(client.pid), "--dir", self.dir, "--color", "never", check=0)
        self.assertNotRegex(done.stdout, "[\x1b\x9b\r]")
        self.assertRegex(done.stdout, rf"(?m)^ *{client.pid} +\S+ +evil\?\[31m\?x")

    def test_mistakes_are_told(self):
        for arguments, words in (
            (["--sort", "nothing"], "no column 'nothing'"),
            (["--columns", "pid,nothing"], "no column 'nothing'"),
            (["--sort", "trend"], "no column 'trend'"),
            (["--user", "no-such-user"], "no user 'no-such-user'"),
            (["--interval", "0.001"], "--interval"),
            (["--json", "--csv"], "exclude"),
            (["--filter", "x" * 200], "longer"),
        ):
            with self.subTest(arguments):
                done = memoir("top", *arguments, check=2)
                self.assertIn(words, done.stderr)
        # Another run of this test has the words, too, in its command line.
        done = memoir("top", "--once", "--filter", f"no process has this in it {os.getpid()}", "--dir", self.dir, check=3)
        self.assertEqual(done.stdout, "")
        self.assertIn("memoir run", memoir("top", "--once", "--tracked", "--dir", self.dir, check=3).stderr)


class Screen(TopTest, ScreenTest):
    def open(self, *arguments, environment=None, **screen):
        self.config = self.dir / "config"
        environment = {"XDG_CONFIG_HOME": self.config} | (environment or {})
        self.open_screen("top", "--interval=0.2", "--dir", self.dir, *arguments, environment=environment, **screen)

    def open_holders(self, *arguments, **screen):
        """A small and a large process, and nobody else in the list."""
        self.small, self.large = self.hold(5, self.tag()), self.hold(40, self.tag())
        self.open(*arguments, **screen)
        self.filter(self.tag())
        self.see(rf"^ *{self.large.pid} [\s\S]*^ *{self.small.pid} ")

    def filter(self, text):
        """Typed, since on a command line the shell around the view would have it, too."""
        self.see(r"^\? help")
        self.type("/" + text)
        self.see(rf"^Filter: {re.escape(text)}_")
        self.press("Enter")
        self.see(r"^Only ")

    def test_figures_change_while_one_looks(self):
        client = self.start_scripted("device 0 Card-A 100000000 1000000", f"alloc 0 {DRAM} 1 25000000",
                                     f"alloc -1 {HEAP} 2 3000000")
        self.open(columns=100)
        self.see(r"^Mem  \S+ [\d.]+[MGT] available of [\d.]+[MGT]$")
        self.see(r"^Dev  0 Card-A  DRAM \S+ 25\.0M/100M")
        self.type("T")
        self.see(rf"^ *{client.pid} .* 3\.00M +25\.0M ")
        self.tell(client, f"alloc 0 {DRAM} 3 50000000")
        self.see(rf"^ *{client.pid} .* 75\.0M ")
        self.press("Space")
        self.see("paused")
        self.tell(client, f"alloc -1 {HEAP} 4 7000000")
        self.press("Down")
        self.assertRegex(self.see(rf"^ *{client.pid} "), r" 3\.00M ")
        self.press("Space")
        self.see(rf"^ *{client.pid} .* 10\.0M ")
        client.kill()
        client.wait()
        self.see("No process keeps a book. Start one with: memoir run PROGRAM")

    def test_sorting_by_keys_menu_and_heading(self):
        self.open_holders()
        self.see("RSS▼")
        self.type("r")
        self.see(rf"RSS▲[\s\S]*^ *{self.small.pid} [\s\S]*^ *{self.large.pid} ")
        self.type(">")
        self.see("RATE▼")
        self.type("<<")  # what stands left of RATE is RSS, and left of that the program
        self.see("PROGRAM▲")
        self.type("s")
        self.see(r"^Sort by$")
        self.press("Home")
        self.press("Enter")  # the first one is the PID
        first, second = sorted([self.small.pid, self.large.pid])
        heading = self.see(rf"PID▲[\s\S]*^ *{first} [\s\S]*^ *{second} ").splitlines()
        row = next(i for i, line in enumerate(heading) if "PID▲" in line)
        self.click(row, heading[row].index("RSS"))
        self.see(rf"RSS▼[\s\S]*^ *{self.large.pid} [\s\S]*^ *{self.small.pid} ")
        self.click(row, heading[row].index("RSS"))
        self.see("RSS▲")

    def test_the_chosen_process_stays_chosen(self):
        self.open_holders()
        marked = lambda pid: self.is_marked(f" {pid} ")
        wait_for(lambda: marked(self.large.pid), "the mark on the first line")
        self.press("End")
        wait_for(lambda: marked(self.small.pid), "the mark on the last line")
        self.type("r")
        wait_for(lambda: marked(self.small.pid) and self.line_with("RSS▲"), "the mark after a turn")
        screen = self.screen().splitlines()
        row = next(i for i, line in enumerate(screen) if f" {self.large.pid} " in line)
        self.click(row, 4)
        wait_for(lambda: marked(self.large.pid), "the mark after a click")
        self.click(row, 4, button=64)
        wait_for(lambda: marked(self.small.pid), "the mark after the wheel")

    def test_a_filter_works_while_one_types(self):
        holder = self.hold(5, self.tag())
        self.open()
        self.see(r"^ +PID ")
        self.type("/" + self.tag()[:-2])
        self.see(rf"^Filter: {self.tag()[:-2]}_")
        self.type(self.tag()[-2:] + "zz")
        self.see("No process is like that")
        self.press("BSpace", "BSpace")
        self.see(rf"^ *{holder.pid} ")
        self.press("Enter")
        self.see(rf"^Only '{re.escape(self.tag())[:20]}.*Esc: all")
        self.press("Escape")
        self.see(r"^\? help")

    def test_a_tree_folds_into_sums(self):
        script = f'"$@" & wait # {self.tag()}'
        program = [sys.executable, "-c", HOLD.replace("sys.stdin.read()", "__import__('signal').pause()"),
                   str(30 << 20), self.tag()]
        parent = subprocess.Popen(["bash", "-c", script, "bash", *program], stdout=subprocess.PIPE,
                                  env=ENVIRONMENT, start_new_session=True)
        self.addCleanup(parent.stdout.close)
        self.addCleanup(parent.wait)
        self.addCleanup(os.killpg, parent.pid, signal.SIGKILL)
        self.assertEqual(parent.stdout.readline(), b"ready\n")
        child = int(pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])
        self.open("--tree", columns=160, rows=40)
        self.filter(self.tag())
        self.see(rf"^ *{parent.pid} [\s\S]*^ *{child} \S+ +(│ |  )*([└├]─|… )")
        # Choose the parent, wherever it stands.
        row = next(i for i, line in enumerate(self.screen().splitlines()) if re.match(rf" *{parent.pid} ", line))
        self.click(row, 4)
        wait_for(lambda: self.is_marked(f" {parent.pid} "), "the mark")
        self.press("Left")
        self.see(rf"^ *{parent.pid} .*\[\+1\] bash +(3\d|4\d)\.\dM")
        self.assertNotRegex(self.screen(), rf"(?m)^ *{child} ")
        self.press("Right")
        self.see(rf"^ *{child} ")
        self.type("t")
        self.see(rf"^ *{child} \S+ +python")

    def test_the_page_of_a_process(self):
        client = self.start_scripted("device 0 Card-A 100000000 1000000", "tag big", f"alloc 0 {DRAM} 9 60000000")
        self.open("--tracked", columns=110, rows=50)
        self.see(rf"^ *{client.pid} ")
        self.press("Enter")
        screen = self.see(r"^Call sites that hold the most\n.*LIVE[\s\S]*60\.0 MB +100\.0 %")
        self.assertRegex(screen, rf"^scripted_client  PID {client.pid}, child of {os.getpid()}, user ")
        self.assertRegex(screen, r"RSS +[\d.]+ [kM]B resident")
        self.assertRegex(screen, r"heap +- ")
        self.assertRegex(screen, r"devices +60\.0 MB by its books")
        self.see(r"^Tracked: no: not asked\n +It was started without the tracker")  # it takes a look at its program
        self.assertRegex(screen, r"(?m)^What its books say\n[\s\S]*dram +60\.0 MB")
        self.see(r"^Resident memory since this view was opened\n[\s\S]*⣿")
        client.kill()
        client.wait()
        self.see(rf"PID {client.pid} is gone")
        self.press("Escape")
        self.see("No process keeps a book")

    def test_the_page_of_a_process_has_what_memoird_noted(self):
        state = self.dir / "state"
        holder = self.hold(20, self.tag())
        daemon = subprocess.Popen(
            [BUILD / "src/daemon/memoird", "--dir", self.dir, "--state", state, "--socket=none", "--tt-socket=none",
             "--history-flush=100ms", "--history-processes=65536", "--log-level=error"],
            env=ENVIRONMENT, stdin=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        noted = lambda: memoir("history", "--state", state, "--since=5m", "--space=rss", "--pid", holder.pid)
        wait_for(lambda: noted().returncode == 0, "a note of the process", 60)
        self.open("--state", state, columns=100, rows=60)
        self.filter(self.tag())
        self.see(rf"^ *{holder.pid} ")
        self.press("Enter")
        self.see(r"^Resident memory in the last hour, as memoird noted it\n +[\d.]+ MB │.*[⢸⣿⡇]")

    def test_other_pages_and_the_way_back(self):
        self.open(columns=100, rows=45)
        self.see(r"^\? help")
        self.type("m")
        self.see(r"^Memory of the machine$[\s\S]*^  total +[\d.]+ [GT]B  the sum of these$")
        self.type("?")
        self.see(r"^Keys$")
        self.press("Escape")
        self.see(r"^Memory of the machine$")
        self.press("Escape")
        self.type("u")
        self.see(rf"^ \[x\] all users[\s\S]*\[ \] {re.escape(pwd.getpwuid(os.getuid()).pw_name)} ")
        self.press("Down", "Enter")
        self.see(r"^Only user \d+ \(Esc: all\)")
        self.type("+")
        self.see("every 500")
        self.type("-")
        self.see("every 200")
        self.type("q")
        self.see("^ended with 0$")

    def test_columns_are_kept_for_the_next_time(self):
        self.open(columns=200)
        self.see(r"^ +PID USER ")
        self.assertNotIn("PPID", self.screen())
        self.type("C")
        self.see(r"^ \[ \] PPID ")
        self.press("Space")  # the first one
        self.see(r"^ \[x\] PPID ")
        self.press("Enter")
        self.see(r"^ +PID +PPID USER [\s\S]*kept for the next time")
        self.type("q")
        self.see("^ended with 0$")
        self.assertIn(",parent,", (self.config / "memoir/toprc").read_text())
        self.tmux("kill-server")
        self.open(columns=200)
        self.see(r"^ +PID +PPID USER ")
        self.tmux("kill-server")
        (self.config / "memoir/toprc").write_bytes(b"columns=\xff\x1b[2J\nsort=nothing\n=\n\0\n" * 1000)
        self.open(columns=200)  # nonsense is as good as nothing
        self.see(r"^ +PID USER ")

    def test_it_follows_the_size_of_the_screen(self):
        self.open_holders()
        for columns, rows in ((60, 12), (40, 8), (25, 4), (12, 3), (200, 50), (80, 24)):
            with self.subTest(columns=columns, rows=rows):
                self.tmux("resize-window", "-x", columns, "-y", rows)
                screen = self.see(rf"^ *{self.large.pid} " if rows > 4 else "memoir top|^Mem|PID")
                wait_for(lambda: self.tmux("display", "-p", "#{pane_width} #{pane_height}").split()
                         == [str(columns), str(rows)], "the new size", 30)
                self.assertLessEqual(max(map(len, screen.splitlines())), 200)
        self.see(rf"^Swap [\s\S]*^ *{self.large.pid} ")

    def test_the_terminal_comes_back_on_every_way_out(self):
        for way, status in (("q", 0), ("C-c", 0), (signal.SIGTERM, 128 + signal.SIGTERM),
                            (signal.SIGHUP, 128 + signal.SIGHUP)):
            with self.subTest(way):
                self.open()
                self.see(r"^\? help")
                if isinstance(way, str):
                    self.press(way)
                else:
                    os.kill(self.pid_of_view(), way)
                self.assert_restored()
                self.assertIn(f"ended with {int(status)}\n", self.screen())
                self.tmux("kill-server")

    def test_it_can_be_stopped_and_goes_on(self):
        self.terminals += 1
        command = shlex.join([str(MEMOIR), "top", "--interval=0.05", "--dir", str(self.dir)])  # drawing most of the time
        # A file rather than a key: who owns the terminal meanwhile is the shell's business.
        wait = f"while [ ! -e {self.dir}/go-on ]; do sleep 0.1; done"
        script = f"set -m; echo hello; {command}; echo stopped; {wait}; fg; echo ended with $?; sleep 600"
        self.tmux("new-session", "-d", "-x", 80, "-y", 24, "bash", "-c", script)
        self.addCleanup(self.tmux, "kill-server")
        self.see(r"^\? help")
        self.press("C-z")
        self.see(r"^hello[\s\S]*^stopped$")
        (self.dir / "go-on").touch()
        self.see(r"^\? help")
        self.type("q")
        self.see("^ended with 0$")

    def test_colours_where_wanted(self):
        self.open()
        self.see(r"^Mem ")
        self.assertRegex(self.line_with("Mem ", "-e"), "\x1b\\[3[2-6]m")
        self.tmux("kill-server")
        self.open(environment={"NO_COLOR": "1"})
        self.see(r"^Mem ")
        self.assertNotRegex(self.screen("-e"), "\x1b\\[[0-9;]*3[1-7]m")

    def test_ascii_where_nothing_else_is_shown(self):
        self.open("--tree", environment={"LC_ALL": "C", "LANG": "C"})
        screen = self.see(r"^Mem  [#=%?+.H]+ [\d.]+[MGT] available[\s\S]*RSSv[\s\S]*`-")
        self.assertTrue(screen.isascii())

    def test_names_cannot_do_anything_to_the_screen(self):
        client = self.start_scripted(program=self.copy_of(SCRIPTED, "evil\x1b[2J\nx\x9by"))
        self.tell(client, f"alloc -1 {HEAP} 2 3000000")
        self.open("--tracked", columns=120)
        self.see(rf"^ *{client.pid} \S+ +evil\?\[2J\?x\?y")
        self.press("Enter")
        self.see(rf"^evil\?\[2J\?x\?y  PID {client.pid}")

    def test_a_dumb_terminal_gets_pictures_one_after_another(self):
        self.open("--filter", str(os.getpid()), "--limit", "1", environment={"TERM": "dumb"})
        self.see("^ended with 0$")
        self.tmux("kill-server")
        holder = self.hold(5, self.tag())
        self.open("--filter", str(holder.pid), environment={"TERM": "dumb"}, rows=60)
        self.see(rf"^ *{holder.pid} [\s\S]*^ *{holder.pid} ")
        self.assertNotIn("? help", self.screen())
