"""The commands without a daemon: usage, help, manuals, completions, ps and doctor."""

import csv
import io
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

import stage
from cli_support import BUILD, CLIENT, COMMANDS, DRAM, ENVIRONMENT, L1, MEMOIR, PATIENCE_S, CommandTest, memoir, wait_for

ESCAPE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Usage(unittest.TestCase):
    def test_without_a_command_the_help_is_shown_and_it_is_a_mistake(self):
        done = memoir(check=2)
        for command in COMMANDS:
            self.assertRegex(done.stdout, rf"(?m)^  {command} ")

    def test_a_bad_number_gets_the_same_words_everywhere(self):
        for command in ("buffers", "query", "history"):
            done = memoir(command, "--limit", "many", check=2)
            self.assertIn("invalid number 'many' for --limit", done.stderr)
            self.assertIn("0 shows all", " ".join(memoir(command, "--help", check=0).stdout.split()))

    def test_watch_looks_every_second_everywhere(self):
        for command in ("ps", "devices", "query"):
            self.assertRegex(" ".join(memoir(command, "--help", check=0).stdout.split()), r"--watch.*default: [a-z ]*every second\)")

    def test_unknown_commands_get_the_nearest(self):
        done = memoir("doctro", check=2)
        self.assertIn("did you mean 'doctor'?", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_every_command_rejects_unknown_options(self):
        for command in COMMANDS:
            with self.subTest(command):
                done = memoir(command, "--frobnicate", check=2)
                self.assertIn("unknown option '--frobnicate'", done.stderr)
                self.assertIn(f"memoir {command} --help", done.stderr)
                self.assertEqual(done.stdout, "")

    def test_every_command_rejects_words_too_many(self):
        for command in set(COMMANDS) - {"run"}:  # whose words are a program and its
            with self.subTest(command):
                memoir(command, *["word"] * 100, check=2)

    def test_bad_values_are_usage_errors(self):
        for arguments in (
            ["ps", "--pid", "me"],
            ["ps", "--sort", "nothing"],
            ["ps", "--json", "--csv"],
            ["ps", "--color", "maybe"],
            ["ps", "--watch=0"],
            ["ps", "--blocks"],
            ["ps", "--exited", "--wide"],
            ["heap", ""],
            ["heap", "--", "-5"],
            ["demo", "--clients", "0"],
            ["demo", "--clients", "1000"],
            ["demo", "--duration", "long"],
            ["--json", "ps"],
            ["--generate", "man", "nothing"],
            ["--generate", "completion", "cmd.exe"],
            ["--generate", "bread", "x"],
        ):
            with self.subTest(arguments):
                self.assertEqual(memoir(*arguments, check=2).stdout, "")

    def test_messages_hold_no_control_characters(self):
        done = memoir("ps", "--\x1b[31m\n\x9b", check=2)
        self.assertIsNone(ESCAPE.search(done.stderr.rstrip("\n")))

    def test_version(self):
        self.assertRegex(memoir("--version", check=0).stdout, r"^memoir \d+\.\d+\.\d+\n$")

    def test_a_closed_pipe_ends_quietly(self):
        shell = subprocess.run(
            ["bash", "-c", f"'{MEMOIR}' help ps | head -n 1"], capture_output=True, env=ENVIRONMENT
        )
        self.assertEqual(shell.stderr, b"")

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([MEMOIR, "help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"No space left", done.stderr)


class Help(unittest.TestCase):
    def test_every_command_has_an_example_that_runs_the_command(self):
        for command in COMMANDS:
            with self.subTest(command):
                text = memoir(command, "--help", check=0).stdout
                self.assertIn("Examples\n", text)
                self.assertRegex(text, rf"(?m)^  (sudo )?memoir {command}\b")

    def test_help_and_the_option_are_the_same(self):
        for command in COMMANDS:
            with self.subTest(command):
                self.assertEqual(
                    memoir("help", command, check=0).stdout,
                    memoir(command, "--help", check=0).stdout,
                )

    def test_help_fits_into_the_terminal(self):
        for command in COMMANDS:
            for width in (60, 80, 100):
                with self.subTest(command=command, width=width):
                    text = memoir(command, "--help", environment={"COLUMNS": str(width)}).stdout
                    body = text.split("Examples\n")[0].splitlines()[1:]
                    self.assertLessEqual(max(map(len, body)), width)

    def test_examples_parse(self):
        """No option in an example is one that the command does not have."""
        for command in COMMANDS:
            text = memoir(command, "--help", check=0).stdout
            options = set(re.findall(r"--[a-z-]+", text.split("Examples\n")[0]))
            for line in re.findall(rf"(?m)^  (?:sudo )?(memoir {command}\b.*)$", text.split("Examples\n")[1]):
                for option in re.findall(r"--[a-z-]+", line.split("|")[0]):
                    self.assertIn(option, options, line)


class Manual(unittest.TestCase):
    def pages(self):
        for name in ["memoir", *COMMANDS]:
            yield name, memoir("--generate", "man", name, check=0).stdout

    def test_pages_render_without_warnings(self):
        if not shutil.which("man") or not shutil.which("groff"):
            self.skipTest("man or groff is not installed")
        for name, text in self.pages():
            with self.subTest(name), tempfile.NamedTemporaryFile(suffix=".1") as page:
                page.write(text.encode())
                page.flush()
                done = subprocess.run(
                    ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page.name],
                    capture_output=True,
                    env=ENVIRONMENT | {"MANWIDTH": "80"},
                )
                self.assertEqual(done.returncode, 0)
                self.assertEqual(done.stderr.decode(), "")

    def test_pages_have_all_sections(self):
        for name, text in self.pages():
            wanted = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"]
            if name != "memoir":
                wanted.append("EXAMPLES")
            for section in wanted:
                self.assertIn(f"\n.SH {section}\n", text, name)

    def test_every_option_of_the_help_is_in_the_page(self):
        for command in COMMANDS:
            page = memoir("--generate", "man", command).stdout.replace("\\-", "-")
            for option in re.findall(r"(?m)^ .*(--[a-z-]+)", memoir(command, "--help").stdout):
                self.assertIn(option, page)

    def test_exit_codes_are_documented(self):
        page = memoir("--generate", "man", "ps").stdout.split(".SH EXIT STATUS")[1]
        self.assertEqual(re.findall(r"(?m)^\.B (\d)$", page), ["0", "1", "2", "3"])


class Completion(unittest.TestCase):
    def script(self, shell):
        with tempfile.NamedTemporaryFile("w", suffix="." + shell, delete=False) as file:
            file.write(memoir("--generate", "completion", shell, check=0).stdout)
        self.addCleanup(os.unlink, file.name)
        return file.name

    def check(self, shell, *arguments):
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not installed")
        done = subprocess.run([shell, *arguments, self.script(shell)], capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_bash_script_parses(self):
        self.check("bash", "-n")

    def test_zsh_script_parses(self):
        self.check("zsh", "-n")

    def test_fish_script_parses(self):
        self.check("fish", "--no-execute")

    def test_bash_offers_processes_and_options(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-cli-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "memoir").write_text("#!/bin/sh\necho 4242,root\necho 77,root\n")
        (folder / "memoir").chmod(0o755)

        def offers(*words):
            done = subprocess.run(
                ["bash", "-c", 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memoir;'
                 ' echo "${COMPREPLY[@]}"', "bash", self.script("bash"), *words],
                env=ENVIRONMENT | {"PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True, text=True, cwd=folder,
            )
            self.assertEqual(done.stderr, "")
            return done.stdout.split()

        for command in ("ps", "heap", "leaks", "sites", "flame", "buffers", "history", "log"):
            files = ["memoir"] if command in ("sites", "flame") else []  # which read snapshots, too
            self.assertEqual(offers("memoir", command, ""), ["4242", "77", *files], command)
            self.assertIn("--help", offers("memoir", command, "--"))
        self.assertEqual(offers("memoir", "heap", "42"), ["4242"])
        self.assertEqual(offers("memoir", "query", "host", "--show", "pid,growth_1"), ["pid,growth_10m", "pid,growth_1m"])
        self.assertEqual(offers("memoir", "query", "host", "--show", "pid,pageable"), [])  # a word of documents, no column
        self.assertEqual(offers("memoir", "ps", "--sort", "-rs"), ["-rss"])
        self.assertEqual(offers("memoir", "query", "exited"), ["exited", "exited_blocks"])
        self.assertNotIn("77", offers("memoir", "devices", ""))

    def test_fish_script_loads(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, home)
        done = subprocess.run(
            ["fish", "-c", f"source {self.script('fish')}; complete -C 'memoir ps --so'"],
            capture_output=True,
            env=ENVIRONMENT | {"HOME": home},
        )
        self.assertIn(b"--sort", done.stdout)

    def offers(self, *words):
        line = " ".join(f"'{word}'" for word in words)
        program = f"""
            source '{self.script("bash")}'
            COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
            _memoir; printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(["bash", "-c", program], capture_output=True, check=True)
        return done.stdout.decode().split()

    def test_bash_offers_commands_options_and_values(self):
        self.assertEqual(self.offers("memoir", "d"), ["devices", "detach", "doctor", "demo"])
        self.assertEqual(self.offers("memoir", "ps", "--so"), ["--sort"])
        self.assertEqual(self.offers("memoir", "ps", "--color", "a"), ["auto", "always"])
        self.assertEqual(self.offers("memoir", "help", "do"), ["doctor"])
        self.assertIn("root", self.offers("memoir", "ps", "--user", "ro"))


# What differs from run to run: identity, times, the kernel's figures.
JSON_MASKS = [
    (r'"(pid|book_pid|uid|age|rss|threads|book_size)":[0-9.]+', r'"\1":0'),
    (r'"(time|start|user)":"[^"]*"', r'"\1":"*"'),
    (r'"command":"[^"]*/', '"command":"*/'),
]
TEXT_MASKS = [
    (r"^ *\d+  \S+ +cli_client", "PID  USER  cli_client"),
    (r"^ *PID +USER +", "PID  USER  "),
    (r" +\d+s  ", "  AGE  "),
    (r" +AGE  ", "  AGE  "),
    (r" +\d+(\.\d+)? [kMG]B  running", "  RSS  running"),
    (r" +RSS  STATE", "  RSS  STATE"),
]


class Ps(CommandTest):
    def test_json_is_as_documented(self):
        self.start_client()
        done = memoir("ps", "--json", "--dir", self.dir, check=0)
        document = json.dumps(json.loads(done.stdout), separators=(",", ":"), ensure_ascii=False)
        for pattern, replacement in JSON_MASKS:
            document = re.sub(pattern, replacement, document)
        self.assert_golden("ps.json", json.dumps(json.loads(document), indent=1) + "\n")

    def test_csv_is_as_documented(self):
        self.start_client()
        done = memoir("ps", "--csv", "--dir", self.dir, check=0)
        self.assertTrue(done.stdout.endswith("\r\n"))
        rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
        self.assertEqual(len(rows), 1)
        process = self.ps()[0]
        for key, value in rows[0].items():
            if key not in ("age", "rss", "start"):  # a clock lies between the two
                wanted = process[key]
                text = json.dumps(wanted) if isinstance(wanted, bool) else str(wanted)
                self.assertEqual(value, "" if wanted is None else text, key)
        self.assert_golden("ps.header.csv", done.stdout.splitlines()[0] + "\n")

    def test_wide_csv_has_a_row_for_each_space(self):
        self.start_client()
        done = memoir("ps", "--csv", "--wide", "--dir", self.dir, check=0)
        text = re.sub(r"(?m)^\d+,[^,]+,cli_client", "PID,USER,cli_client", done.stdout)
        self.assert_golden("ps-wide.csv", text)

    def test_text_is_as_documented(self):
        self.start_client()
        text = memoir("ps", "--dir", self.dir, check=0).stdout
        self.assert_golden("ps.txt", text, TEXT_MASKS)

    def test_wide_text_is_as_documented(self):
        self.start_client()
        text = memoir("ps", "--wide", "--dir", self.dir, check=0).stdout
        self.assert_golden("ps-wide.txt", text, TEXT_MASKS)

    def test_lines_fit_into_the_terminal(self):
        self.start_client()
        for width in (40, 60, 80, 140):
            for arguments in ([], ["--wide"]):
                text = memoir(
                    "ps", "--dir", self.dir, *arguments, environment={"COLUMNS": str(width)}
                ).stdout
                for line in text.splitlines():
                    if width >= 60:
                        self.assertLessEqual(len(line), width, line)

    def test_headers_can_be_left_out(self):
        self.start_client()
        for arguments in ([], ["--csv"], ["--wide"]):
            lines = memoir("ps", "--dir", self.dir, "--no-header", *arguments).stdout.splitlines()
            self.assertRegex(lines[0], r"^ *\d+")

    def test_filters_by_pid_and_user(self):
        first, second = self.start_client(), self.start_client()
        self.assertEqual([p["pid"] for p in self.ps("--pid", first.pid)], [first.pid])
        self.assertEqual(len(self.ps("--user", os.getuid())), 2)
        self.assertEqual({p["pid"] for p in self.ps()}, {first.pid, second.pid})

    def test_what_is_asked_for_and_not_there_ends_with_3(self):
        self.start_client()
        done = memoir("ps", "--dir", self.dir, "--pid", 1, check=3)
        self.assertIn("process 1 runs and keeps no book", done.stderr)
        done = memoir("ps", "--dir", self.dir, "--pid", 4194304, check=3)
        self.assertIn("there is no process 4194304", done.stderr)
        memoir("ps", "--dir", self.dir, "--user", 4294967294, check=3)
        memoir("ps", "--dir", self.dir, "--user", "nobody-at-all", check=3)
        self.assertEqual(self.ps("--pid", 1, check=3), [])

    @unittest.skipIf(os.getuid() != 0, "needs another user's process")
    def test_process_of_another_user_is_not_permitted(self):
        """That is neither 'reports nothing' nor 'keeps no book', which nobody but its owner can tell."""
        other = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(lambda: (other.kill(), other.wait()))
        for command in ["ps", "--pid"], ["buffers"], ["leaks", "--scan"], ["sites"], ["flame"]:
            with self.subTest(command[0]):
                done = subprocess.run([BUILD / "src/cli/memoir", *command, str(other.pid)], user=65534, group=65534,
                                      env=ENVIRONMENT, cwd="/", capture_output=True, text=True)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(f"not permitted: process {other.pid} is of user root", done.stderr)

    def test_nothing_at_all_explains_what_to_do(self):
        done = memoir("ps", "--dir", self.dir, check=0)
        self.assertEqual(done.stdout, "")
        self.assertIn(f"No process keeps a book yet. Try: memoir demo --dir {self.dir}, and memoir ps --dir", done.stderr)
        self.assertEqual("Only root sees" in done.stderr, os.geteuid() != 0)
        self.assertEqual(self.ps(), [])

    def test_what_to_do_can_be_pasted_into_a_shell(self):
        odd = self.dir / "it's odd"
        odd.mkdir()
        done = memoir("ps", "--dir", odd, check=0)
        self.assertIn(f"memoir demo --dir '{self.dir}/it'\\''s odd', and", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become somebody else")
    def test_others_learn_that_they_see_only_their_own(self):
        self.dir.chmod(0o755)
        program = stage.build_root() / "src/cli/memoir"
        done = subprocess.run([program, "ps", "--dir", self.dir], capture_output=True, env=ENVIRONMENT, user=65534)
        self.assertIn(b"Only root sees books of other users", done.stderr)

    def test_a_directory_that_is_none_is_a_failure(self):
        for path in ("/nonexistent", "/etc/passwd"):
            self.assertIn("cannot look for books in", memoir("ps", "--dir", path, check=1).stderr)
            self.assertIn("cannot look for books in", memoir("demo", "--dir", path, check=1).stderr)
        memoir("doctor", "--dir", "/nonexistent", check=1)

    def test_sorts_by_any_column(self):
        for _ in range(3):
            self.start_client()
        pids = [p["pid"] for p in self.ps("--sort", "pid")]
        self.assertEqual(pids, sorted(pids, reverse=True))
        pids = [p["pid"] for p in self.ps("--sort", "+pid")]
        self.assertEqual(pids, sorted(pids))

    def test_a_pid_alone_is_the_same_as_the_option(self):
        self.start_client()
        wanted = self.start_client().pid
        self.assertEqual([p["pid"] for p in self.ps(wanted)], [wanted])
        self.assertEqual([p["pid"] for p in self.ps("--pid", wanted)], [wanted])
        for command in ("ps", "log", "buffers", "exited"):
            self.assertIn("'x7' is not a valid PID", memoir(command, "x7", check=2).stderr)
            self.assertIn("beside --pid", memoir(command, "--pid", "7", "8", check=2).stderr)

    def test_the_book_of_a_dead_process_stays_readable_and_comes_last(self):
        dead = self.start_client("die")
        dead.wait()
        alive = self.start_client()
        processes = self.ps("--all", "--sort=-holds,-device")
        self.assertEqual([p["pid"] for p in processes], [alive.pid, dead.pid])
        self.assertEqual([p["state"] for p in processes], ["running", "exited"])
        self.assertEqual(processes[1]["device"], processes[0]["device"])
        self.assertIsNone(processes[1]["rss"])
        done = memoir("ps", "--dir", self.dir, check=0)
        self.assertEqual(len(done.stdout.splitlines()), 2)  # sums and lists do not count it
        self.assertIn("1 process is gone, with its book still there: memoir ps --all", done.stderr)
        lines = memoir("ps", "--all", "--dir", self.dir, check=0).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]], [str(alive.pid), str(dead.pid)])

    def test_losses_are_noted(self):
        self.start_client("lossy")
        self.assertEqual(self.ps()[0]["losses"], 1)
        self.assertIn("1 report lost", memoir("ps", "--dir", self.dir).stdout)

    def test_names_of_strangers_cannot_drive_the_terminal(self):
        name = "evil\x1b]0;title\x07\x1b[31m\nrow\u202e"
        self.start_client(program=self.copy_of(CLIENT, name))
        for arguments in ([], ["--wide"], ["--csv"], ["--color", "never"]):
            text = memoir("ps", "--dir", self.dir, *arguments).stdout
            self.assertIsNone(ESCAPE.search(text.replace("\n", "").replace("\r", "")), text)
            self.assertNotIn("\u202e", memoir("ps", "--dir", self.dir).stdout)
        self.assertEqual(len(memoir("ps", "--dir", self.dir).stdout.splitlines()), 2)

    def test_books_that_make_no_sense_are_mentioned(self):
        self.start_client()
        place = self.dir / str(os.geteuid())
        (place / "1-1-1-0000000000000000.book").write_bytes(b"nonsense" * 1000)
        done = memoir("ps", "--dir", self.dir, check=0)
        self.assertIn("1 book is left out; memoir doctor tells why", done.stderr)
        findings = json.loads(memoir("doctor", "--json", "--dir", self.dir).stdout)["findings"]
        self.assertTrue(
            any(f["check"] == "books" and f["status"] == "warn" for f in findings), findings
        )

    def test_colours_only_where_wanted(self):
        self.start_client()
        self.assertNotIn("\x1b", memoir("ps", "--dir", self.dir).stdout)
        self.assertIn("\x1b[1m", memoir("ps", "--dir", self.dir, "--color=always").stdout)
        self.assertIn("\x1b[1m", self.on_a_terminal({}, "ps"))
        self.assertNotIn("\x1b", self.on_a_terminal({"NO_COLOR": "1"}, "ps"))
        self.assertNotIn("\x1b", self.on_a_terminal({"TERM": "dumb"}, "ps"))
        self.assertNotIn("\x1b", self.on_a_terminal({}, "ps", "--color=never"))

    def on_a_terminal(self, environment, *arguments):
        """What a command prints when it writes to a terminal."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [MEMOIR, *arguments, "--dir", self.dir],
            stdout=slave,
            env=ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
        )
        os.close(slave)
        text = b""
        try:
            while part := os.read(master, 65536):
                text += part
        except OSError:
            pass  # the other end is closed
        os.close(master)
        process.wait()
        return text.decode()

    def test_without_utf8_the_output_is_ascii(self):
        name = "é-日本-a-name-too-long-for-any-column-of-a-terminal"
        self.start_client(program=self.copy_of(CLIENT, name))
        done = memoir(
            "ps", "--dir", self.dir, environment={"LC_ALL": "C", "COLUMNS": "80"}, check=0
        )
        self.assertTrue(done.stdout.isascii())

    def test_watch_shows_changes_until_it_is_interrupted(self):
        client = self.start_client()
        watch = subprocess.Popen(
            [MEMOIR, "ps", "--watch=0.1", "--dir", self.dir],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        seen = ""

        def read_until(word):
            nonlocal seen
            while word not in seen:
                line = watch.stdout.readline()
                self.assertNotEqual(line, "")
                seen += line
            seen = ""

        read_until("1 process keeps a book")
        client.stdin.close()
        read_until("0 processes keep books")
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(), -signal.SIGINT)
        watch.stdout.close()


    def test_accounts_that_cannot_be_told_are_counted(self):
        self.start_scripted("device 0 Sim 0 0", f"alloc 0 {DRAM} 1 1000", f"alloc 0 {L1} 1 50")
        (book,) = self.dir.glob("*/*.book")
        with open(book, "r+b") as file:
            header = file.read(4096)
            sections = [struct.unpack_from("=IIQQQQQ", header, 1592 + i * 48) for i in range(32)]
            _, step, at, _, _, used, _ = next(s for s in sections if s[0] == 2)  # the registry
            for number in range(1, used):
                file.seek(at + number * step)
                if struct.unpack("=II", file.read(8)) == (2, L1):
                    file.seek(at + number * step + 4)
                    file.write(struct.pack("=I", 40))
        (process,) = json.loads(memoir("ps", "--json", "--dir", self.dir, check=0).stdout)["rows"]
        self.assertEqual(process["device"], 1000)
        self.assertIn("1 account left out", process["notes"])


class Doctor(CommandTest):
    def findings(self, *arguments, environment=None):
        done = memoir("doctor", "--json", "--dir", self.dir, *arguments, environment=environment)
        document = json.loads(done.stdout)
        self.assertEqual(document["schema"], "memoir.doctor/1")
        self.assertEqual(done.returncode, 1 if document["fail"] else 0)
        counted = [f["status"] for f in document["findings"]]
        for status in ("ok", "warn", "fail"):
            self.assertEqual(document[status], counted.count(status))
        return document["findings"]

    def status(self, check, findings):
        return [f["status"] for f in findings if f["check"] == check]

    def test_a_healthy_place_is_ok(self):
        findings = self.findings()
        for check in ("places", "trial book", "books", "losses", "pages", "fork"):
            self.assertEqual(self.status(check, findings), ["ok"], check)

    def test_a_parser_that_cannot_be_confined_is_told(self):
        told = [f for f in self.findings(environment={"MEMOIR_OBSERVE": "/bin/false"}) if f["check"] == "tracing"]
        self.assertEqual([f["status"] for f in told if "cannot confine" in f["finding"]], ["warn"], told)
        self.assertFalse([f for f in told if "can be traced" in f["finding"]], told)

    def finding(self, check):
        return next(f for f in self.findings() if f["check"] == check)

    def start_daemon(self, *arguments):
        state = tempfile.mkdtemp(prefix="memoir-test-cli-")
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        daemon = subprocess.Popen(
            [BUILD / "src/daemon/memoird", "--foreground", "--state", state, "--tt-socket", f"{state}/tt",
             *map(str, arguments)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
        )
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        return daemon

    def test_a_daemon_counts_when_it_has_locked_these_books(self):
        daemon = self.start_daemon("--dir", self.dir, "--socket", self.dir / "socket")
        wait_for(lambda: self.finding("daemon")["status"] == "ok", "a daemon that is found")
        self.assertIn(f"memoird (PID {daemon.pid}) runs", self.finding("daemon")["finding"])

    def test_a_daemon_that_has_ended_does_not_run(self):
        dead = subprocess.Popen([self.copy_of("/bin/true", "memoird")])
        self.addCleanup(dead.wait)
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        self.assertNotIn(f"(PID {dead.pid})", self.finding("daemon")["finding"])

    @unittest.skipIf(os.geteuid(), "needs root")
    def test_who_may_not_ask_is_not_told_to_start_a_daemon(self):
        closed = self.dir / "closed"
        closed.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(closed / "memoird.sock"))
            listener.listen()
            said = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", stage.build_root() / "src/cli/memoir", "doctor", "--json"],
                env=ENVIRONMENT | {"XDG_RUNTIME_DIR": str(closed)}, capture_output=True, timeout=PATIENCE_S,
            )
        told = [f for f in json.loads(said.stdout)["findings"] if str(closed) in f["finding"]]
        self.assertEqual([f["status"] for f in told if "may not ask" in f["finding"]], ["ok"], told)

    def test_a_daemon_of_other_books_is_not_taken_for_ours(self):
        other = self.dir / "other"
        other.mkdir()
        self.start_daemon("--dir", other, "--socket", other / "socket")
        wait_for((other / "socket").exists, "the daemon")
        self.assertEqual(self.finding("daemon")["status"], "warn")
        self.assertIn("whether for these books is not known", self.finding("daemon")["finding"])

    def test_the_socket_is_asked_whether_it_answers(self):
        runtime = self.dir / "runtime"
        runtime.mkdir()
        answers = lambda: [f for f in self.findings(environment={"XDG_RUNTIME_DIR": str(runtime)})
                           if f["check"] == "socket" and str(runtime) in f["finding"]]
        self.assertEqual(answers(), [])
        daemon = self.start_daemon("--dir", self.dir, "--socket", runtime / "memoird.sock")
        wait_for((runtime / "memoird.sock").exists, "the socket")
        self.assertEqual([(f["status"], f["finding"]) for f in answers()],
                         [("ok", f"memoird answers at {runtime}/memoird.sock")])
        daemon.kill()
        daemon.wait()
        self.assertEqual([f["status"] for f in answers()], ["warn"])

    def test_the_trial_leaves_nothing_behind(self):
        self.findings()
        self.assertEqual(list(self.dir.glob("*/*")), [])

    def test_a_place_that_others_can_write_to_fails_with_a_remedy(self):
        place = self.dir / str(os.geteuid())
        place.mkdir()
        place.chmod(0o777)
        findings = self.findings()
        self.assertIn("fail", self.status("places", findings))
        self.assertEqual(self.status("trial book", findings), ["fail"])
        for finding in findings:
            if finding["check"] == "places":
                self.assertTrue(finding["remedy"])

    def test_a_place_on_a_disk_is_refused(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
            if subprocess.run(["stat", "-fc%T", disk], capture_output=True).stdout == b"tmpfs\n":
                self.skipTest("/var/tmp is in memory here")
            done = memoir("doctor", "--dir", disk, check=1)
            self.assertIn("is not in memory", done.stdout)

    def test_limits_of_the_shell_are_told(self):
        done = subprocess.run(
            ["bash", "-c", f"ulimit -f 100; '{MEMOIR}' doctor --dir '{self.dir}'"],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
        )
        self.assertIn("the size of files is limited", done.stdout)
        self.assertIn("ulimit -f unlimited", done.stdout)

    def test_losses_are_explained(self):
        client = self.start_client("lossy")
        finding = next(f for f in self.findings() if f["check"] == "losses")
        self.assertEqual(finding["status"], "warn")
        self.assertIn(f"PID {client.pid}", finding["finding"])
        self.assertIn("1 freed what was never reported", finding["finding"])

    def test_a_book_of_a_later_version_is_no_rubbish(self):
        self.start_client()
        (book,) = self.dir.glob("*/*.book")
        later = book.with_name("1-1-1-later.book")
        subprocess.run(["cp", "--sparse=always", book, later], check=True)
        with open(later, "r+b") as file:
            file.seek(16)
            file.write(struct.pack("=I", 1 << 31))
        finding = next(f for f in self.findings() if later.name in f["finding"])
        self.assertIn("a version that this program does not know", finding["finding"])
        self.assertIn("newer memoir", finding["remedy"])
        self.assertNotIn("remove", finding["remedy"])

    def test_text_names_every_check(self):
        done = memoir("doctor", "--dir", self.dir, environment={"COLUMNS": "80"}, check=0)
        for finding in self.findings():
            self.assertIn(finding["check"], done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
        self.assertRegex(done.stdout, r"\d+ ok, \d+ warnings?, 0 failures\n$")


class Exited(CommandTest):
    LINES = [
        {
            "pid": 4242, "pid_ns": 1, "uid": 0, "name": "train.py", "comm": "python3",
            "command": "python3 train.py", "cause": "killed by SIGKILL", "signal": 9,
            "start": 1763200000.5, "end": 1763200060.75, "figures_complete": True,
            "blocks_complete": True,
            "devices": [{"kind": 4, "ordinal": 0, "name": "Sim A", "uid": "SIM-0A"}],
            "accounts": [
                {"space": "pinned", "name": "pinned", "source": "client", "live_bytes": 4096,
                 "live_blocks": 1, "peak_bytes": 4096},
                {"space": "dram", "name": "dram", "source": "client", "device": 0,
                 "live_bytes": 25500000, "live_blocks": 150, "peak_bytes": 30000000},
            ],
            "blocks": [
                {"id": "0x1", "bytes": 170000, "account": 1, "age_s": 12.5, "tag": "weights",
                 "site": 0, "moves": 2},
                {"id": "0x2", "bytes": 4096, "account": 0, "age_s": 1},
            ],
            "sites": [{"key": "0x1", "frames": ["/usr/lib/libfoo.so+0x1234", "/bin/x+0x1"]}],
        },
        {
            "pid": 17, "uid": 4294967294, "name": "b\u001b[31m", "cause": "exited with 3",
            "exit_code": 3, "end": 1763200070, "devices": [], "accounts": [], "blocks": [],
            "sites": [],
        },
    ]

    def setUp(self):
        super().setUp()
        self.list = self.dir / "retired.jsonl"
        self.write(*map(json.dumps, self.LINES))

    def write(self, *lines):
        self.list.write_text("".join(line + "\n" for line in lines))

    def exited(self, *arguments, check=0):
        return memoir("ps", "--exited", "--state", self.dir, *arguments, check=check)

    def test_outputs_are_as_documented(self):
        self.assert_golden("exited.txt", self.exited().stdout)
        self.assert_golden("exited.csv", self.exited("--csv").stdout)
        self.assert_golden("exited-blocks.txt", self.exited("--blocks", "--pid", 4242).stdout)
        self.assert_golden("exited-blocks.csv", self.exited("--blocks", "--csv").stdout)
        document = json.loads(self.exited("--json").stdout)
        document["time"] = "*"
        self.assert_golden("exited.json", json.dumps(document, indent=1) + "\n")

    def test_estimates_are_marked(self):
        line = json.loads(json.dumps(self.LINES[0]))
        line["accounts"][0]["sampled"] = True
        line["accounts"][1]["partial"] = True
        self.write(json.dumps(line))
        row = self.exited("--no-header").stdout
        self.assertIn("25.5 MB+", row)
        self.assertIn("~4.1 kB", row)
        self.assertIn("~151+", row)
        (process,) = json.loads(self.exited("--json", "--show", "pid,device,pinned,blocks").stdout)["rows"]
        self.assertEqual(process["at_least"], ["device", "blocks"])
        self.assertEqual(process["estimate"], ["pinned", "blocks"])

    def test_the_older_file_counts_too(self):
        self.list.rename(self.dir / "retired.jsonl.1")
        self.assertIn("train.py", self.exited().stdout)
        self.write(json.dumps(self.LINES[0] | {"name": "newer"}))
        rows = self.exited("--no-header").stdout.splitlines()
        self.assertEqual(len(rows), 3)
        self.assertEqual(sum("newer" in row for row in rows), 1)

    def test_filters(self):
        self.assertEqual(len(self.exited("--csv", "--no-header", "--pid", 4242).stdout.splitlines()), 1)
        self.assertIn("remembers no process 5", self.exited("--pid", 5, check=3).stderr)

    def test_lines_that_make_no_sense_are_counted(self):
        self.write("nonsense", "[]", "{}", json.dumps(self.LINES[0]), '{"pid": -1, "blocks": [7]}')
        done = self.exited()
        self.assertIn("2 invalid lines in the daemon's list", done.stderr)
        self.assertIn("train.py", done.stdout)

    def test_a_line_that_is_being_written_is_no_complaint(self):
        with self.list.open("a") as file:
            file.write('{"pid": 1, "na')
        self.assertEqual(self.exited().stderr, "")

    def test_wild_indices_and_types_are_survived(self):
        for field, value in (
            ("accounts", [{"space": "dram", "device": 99, "live_bytes": -5}]),
            ("accounts", [{"space": 5}, 7, None]),
            ("accounts", "none"),
            ("blocks", [{"account": 10**18, "site": -1, "bytes": "x", "age_s": 1e300}]),
            ("devices", None),
            ("end", 1e300),
            ("name", ["x"]),
            ("uid", -1),
        ):
            with self.subTest(field=field, value=value):
                self.write(json.dumps(self.LINES[0] | {field: value}))
                json.loads(self.exited("--json").stdout)
                self.exited("--blocks")

    def test_a_pipe_in_its_place_does_not_hold_us_up(self):
        self.list.unlink()
        os.mkfifo(self.list)
        self.assertIn("cannot read the daemon's list", self.exited(check=1).stderr)

    def test_no_list_is_told(self):
        self.list.unlink()
        done = self.exited(check=3)
        self.assertIn("there is no list of processes that ended", done.stderr)
