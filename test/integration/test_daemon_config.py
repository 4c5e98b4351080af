"""memoird's settings: file, flags, errors, SIGHUP, logs."""

import json
import signal
import subprocess
import unittest

from daemon_fixture import MEMOIRD, DaemonTest


class Settings(DaemonTest):
    def config(self, text):
        path = self.folder / "memoird.conf"
        path.write_text(text, encoding="utf-8")
        return path

    def refuse(self, *flags):
        done = self.run_memoird(*flags)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr.strip()

    def test_unknown_key_names_the_line_and_the_nearest(self):
        path = self.config("# settings\n\nrefresh = 1s\nlog-levle = debug\n")
        self.assertEqual(self.refuse("--config", path),
                         f"{path}:4: unknown key 'log-levle', did you mean 'log-level'?")

    def test_file_that_is_no_text_is_refused_whole(self):
        path = self.config("refresh = 1s\n\0books-max = 0\n")
        self.assertEqual(self.refuse("--config", path), f"{path}: has a byte 0, so it is no text")

    def test_word_that_is_near_to_nothing_gets_no_suggestion(self):
        path = self.config("zzzzzz = 1\n")
        self.assertEqual(self.refuse("--config", path), f"{path}:1: unknown key 'zzzzzz'")

    def test_bad_values_say_what_is_wanted(self):
        for text, words in [
                ("refresh = soon", "refresh = soon: expected a time such as 500ms, 10s or 1m"),
                ("refresh = 1", "refresh = 1: expected a time such as 500ms, 10s or 1m"),
                ("refresh = 1ms", "refresh = 1ms is out of range: from 10.0 ms to 1h"),
                ("tmpfs-size = many", "tmpfs-size = many: expected a size such as 64M"),
                ("books-max = -1", "books-max = -1: expected a number"),
                ("books-max = 0", "books-max = 0 is out of range: from 1 to 1000000"),
                ("daemon = perhaps", "daemon = perhaps: expected yes or no"),
                ("log-level = loud", "log-level = loud: use one of error|warn|info|debug"),
                ("log-format = xml", "log-format = xml: use one of auto|text|json|journal"),
                ("just a line", "expected 'key = value'"),
                ('state = "open', "expected 'key = value'"),
                ("config = x", "'config' is a flag of the command line only"),
        ]:
            path = self.config(text + "\n")
            self.assertEqual(self.refuse("--config", path), f"{path}:1: {words}")

    def test_flags_are_checked_the_same_way(self):
        self.assertEqual(self.refuse("--refersh", "1s"), "memoird: unknown flag '--refersh', did you mean '--refresh'? (see: memoird --help)")
        self.assertEqual(self.refuse("--zzzz"), "memoird: unknown flag '--zzzz' (see: memoird --help)")
        self.assertEqual(self.refuse("--refresh"), "memoird: --refresh needs a value: TIME")
        self.assertEqual(self.refuse("--refresh=never"), "memoird: refresh = never: expected a time such as 500ms, 10s or 1m")
        self.assertEqual(self.refuse("books"), "memoird: unexpected argument 'books' (see: memoird --help)")

    def test_missing_file_is_an_error_only_if_asked_for(self):
        path = self.folder / "none.conf"
        self.assertEqual(self.refuse("--config", path),
                         f"{path}: cannot read the configuration: No such file or directory")

    def test_flags_win_over_the_file(self):
        log = self.folder / "log"
        path = self.config(f'log-file = {log}   # where it goes\nlog-format = json\nlog-level = "debug"\n')
        daemon = self.spawn("--config", path, "--dir", self.books, "--state", self.state, "--log-format=text")
        self.wait_until(lambda: log.exists() and "ready" in log.read_text(), "the log has a line")
        self.assertRegex(log.read_text(), r"(?m)^20\S+Z info: memoird \S+ ready")
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertEqual(daemon.err.lines, [])

    def test_foreground_flag_wins_over_daemon_in_the_file(self):
        path = self.config("daemon = yes\n")
        daemon = self.daemon("--config", path, "--foreground")
        self.assertIsNone(daemon.popen.poll())

    def test_sample_is_a_valid_file_with_every_key(self):
        sample = self.run_memoird("--print-config").stdout
        help_text = self.run_memoird("--help").stdout
        manual = self.run_memoird("--print-manual").stdout
        keys = [line[1:].split(" ")[0] for line in sample.splitlines() if line.startswith("#") and line[1:2] not in (" ", "")]
        self.assertGreater(len(keys), 12)
        for key in keys:
            self.assertIn(f"--{key}", help_text)
            self.assertIn("\\-\\-" + key.replace("-", "\\-"), manual)
        uncommented = "\n".join(line[1:] if line.startswith("#") and line[1:2] not in (" ", "") else line
                                for line in sample.splitlines())
        path = self.config(uncommented)
        self.daemon("--config", path)  # every default is a value that the parser takes

    def test_shipped_sample_is_up_to_date(self):
        import os
        import pathlib
        root = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
        self.assertEqual((root / "doc/memoird.conf").read_text(encoding="utf-8"),
                         self.run_memoird("--print-config").stdout,
                         "memoird --print-config > doc/memoird.conf")

    def test_help_fits_and_version_is_there(self):
        help_text = self.run_memoird("--help").stdout
        self.assertIn("Usage: memoird", help_text)
        self.assertEqual([line for line in help_text.splitlines() if len(line) > 80], [])
        self.assertRegex(self.run_memoird("--version").stdout, r"^memoird \d+\.\d+\.\d+\n$")


class Reload(DaemonTest):
    def test_sighup_takes_what_can_change_and_names_the_rest(self):
        path = self.folder / "memoird.conf"
        path.write_text("refresh = 1s\n")
        daemon = self.daemon("--config", path)
        path.write_text("refresh = 100ms\nlog-level = debug\nbooks-max = 7\n")
        daemon.kill(signal.SIGHUP)
        daemon.err.wait("configuration read again: changed log-level, refresh$")
        daemon.err.wait("warn: needs a restart to take effect: books-max$")
        client = self.client("device=D", "dram=1x100000", "ready", "wait")
        self.watched(daemon, client.pid)  # a line of level debug

    def test_sighup_with_a_bad_file_changes_nothing(self):
        path = self.folder / "memoird.conf"
        path.write_text("refresh = 1s\n")
        daemon = self.daemon("--config", path)
        path.write_text("refresh = 100ms\nnonsense\n")
        daemon.kill(signal.SIGHUP)
        daemon.err.wait(r"memoird.conf:2: expected 'key = value'; the old configuration stays$")
        path.write_text("refresh = 1s\n")
        daemon.kill(signal.SIGHUP)
        daemon.err.wait("configuration read again: nothing changed$")

    def test_sighup_reopens_the_log(self):
        log = self.folder / "log"
        daemon = self.daemon("--log-file", log, ready=False)
        self.wait_until(lambda: log.exists() and "ready" in log.read_text(), "the log has a line")
        log.rename(self.folder / "log.1")
        daemon.kill(signal.SIGHUP)
        self.wait_until(lambda: log.exists() and "read again" in log.read_text(), "the new log has a line")

    def test_flags_go_on_winning(self):
        path = self.folder / "memoird.conf"
        path.write_text("")
        daemon = self.daemon("--config", path, "--refresh=2s")
        path.write_text("refresh = 100ms\n")
        daemon.kill(signal.SIGHUP)
        daemon.err.wait("nothing changed$")


class Logs(DaemonTest):
    def test_json_lines_are_valid_whatever_the_names(self):
        daemon = self.daemon("--log-format=json", "--log-level=debug")
        program = self.folder / 'na"me\\ \x01\n\xff'
        program.write_bytes((MEMOIRD.parents[2] / "test/integration/client").read_bytes())
        program.chmod(0o755)
        client = self.client("device=D", "dram=2x500000", "ready", "wait", program=program)
        self.watched(daemon, client.pid)
        client.kill()
        daemon.err.wait(r'"event":"retired"')
        daemon.kill(signal.SIGTERM)
        daemon.wait()
        records = [json.loads(line) for line in daemon.err.lines]
        retired = next(r for r in records if r.get("event") == "retired")
        self.assertEqual((retired["pid"], retired["cause"], retired["level"]), (client.pid, "killed by SIGKILL", "info"))
        self.assertTrue(retired["message"].endswith("gone: removed 2 buffers (1.0 MB)"))

    def test_log_that_cannot_be_opened(self):
        done = subprocess.run([str(MEMOIRD), "--dir", str(self.books), "--state", str(self.state), "--log-file",
                               "/nonexistent/log"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot open log '/nonexistent/log': No such file or directory", done.stderr)


if __name__ == "__main__":
    unittest.main()
