"""memoir devices: bars, sums of L1, owners, formats and exit codes."""

import csv
import io
import json
import signal
import struct
import subprocess
import threading

from cli_support import (
    CB,
    DRAM,
    ENVIRONMENT,
    HEAP,
    KERNEL,
    L1,
    L1_SMALL,
    MEMOIR,
    TRACE,
    CommandTest,
    memoir,
)

ASCII = {"LANG": "C", "LC_ALL": "C"}


class Devices(CommandTest):
    def devices(self, *arguments, check=0, environment=None):
        return memoir("devices", "--dir", self.dir, *arguments, check=check, environment=environment)

    def rows(self, *arguments):
        return json.loads(self.devices("--json", *arguments).stdout)["rows"]

    def space(self, name, *arguments):
        return next(r for r in self.rows(*arguments) if r["space"] == name)

    def card(self, *lines, l1=1000000):
        return self.start_scripted(f"device 0 Card-A 100000000 {l1}", *lines)

    def test_sums_over_processes_and_names_the_largest_first(self):
        small = self.card(f"alloc 0 {DRAM} 1 10000000")
        large = self.card(f"alloc 0 {DRAM} 1 30000000")
        dram = self.space("dram")
        self.assertEqual((dram["used"], dram["capacity"], dram["percent"]), (40000000, 100000000, 40))
        self.assertEqual((dram["blocks"], dram["processes"]), (2, 2))
        self.assertRegex(self.devices(environment={"COLUMNS": "120"}).stdout,
                         rf"held by +\S+ 30\.0 MB \(PID {large.pid}\), \S+ 10\.0 MB \(PID {small.pid}\)")

    def test_l1_total_is_buffers_and_circular_buffers_and_kernels(self):
        self.card(
            f"alloc 0 {L1} 1 300000",
            f"alloc 0 {CB} 1 200000",
            f"alloc 0 {KERNEL} 1 100000",
            f"alloc 0 {L1_SMALL} 1 50000",
        )
        self.assertEqual([self.space(part)["used"] for part in ("l1", "cb", "kernel", "l1_small")],
                         [300000, 200000, 100000, 50000])
        text = self.devices(environment=ASCII).stdout
        bar = next(line for line in text.splitlines() if "L1 total" in line)
        self.assertRegex(bar, r"650\.0 kB / 1\.0 MB +#+=+\++%*\.+ +65\.0 % +4 blocks$")

    def test_the_screen(self):
        self.card(f"alloc 0 {DRAM} 1 25500000", f"alloc 0 {L1} 1 300000", f"alloc 0 {CB} 7 22400")
        text = self.devices().stdout
        self.assert_golden("devices.txt", text, [(r"PID \d+", "PID 1")])
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_every_width_fits(self):
        self.card(f"alloc 0 {DRAM} 1 25500000", f"fill 0 {CB} 1000 1")
        self.card(f"alloc 0 {DRAM} 1 25500000")
        for width in (50, 60, 80, 100, 200):
            for locale in ({}, ASCII):
                text = self.devices(environment={"COLUMNS": str(width)} | locale).stdout
                self.assertLessEqual(max(map(len, text.splitlines())), width)
                self.assertEqual(text.isascii(), bool(locale))

    def test_an_unknown_capacity_is_told_as_such(self):
        self.card(f"alloc 0 {TRACE} 1 1000000")
        space = self.space("trace")
        self.assertIsNone(space["capacity"])
        self.assertIsNone(space["percent"])
        self.assertRegex(self.devices().stdout, r"TRACE +1\.0 MB / \? +capacity unknown +- ")

    def test_colours_at_75_and_90_percent(self):
        client = self.card(f"alloc 0 {DRAM} 1 74000000")
        for more, escape in ((0, "32"), (1000000, "33"), (15000000, "1;31")):
            if more:
                self.tell(client, f"alloc 0 {DRAM} {more} {more}")
            text = self.devices("--color", "always").stdout
            line = next(line for line in text.splitlines() if "DRAM" in line)
            self.assertIn(f"\x1b[{escape}m", line)
        self.assertNotIn("\x1b", self.devices().stdout)

    def test_what_the_dead_held_does_not_count(self):
        victim = self.card(f"alloc 0 {DRAM} 1 50000000", f"alloc 0 {KERNEL} 1 5000")
        self.card(f"alloc 0 {DRAM} 1 10000000")
        victim.kill()
        victim.wait()
        self.assertEqual((self.space("dram")["used"], self.space("kernel")["used"]), (10000000, 0))
        self.assertIn("1 process is gone and no longer counts (50.0 MB", self.devices().stdout)

    def test_a_device_is_found_by_number_uid_and_name(self):
        self.card(f"alloc 0 {DRAM} 1 1")
        self.start_scripted("device 1 Card-B 0 0", f"alloc 1 {DRAM} 1 2")
        self.assertEqual({r["device"] for r in self.rows()}, {"0 Card-A", "1 Card-B"})
        for name in ("1", "card-b", "Card-B", "1 card-b"):
            self.assertEqual({r["device_name"] for r in self.rows("--device", name)}, {"Card-B"})
        self.devices("--device", "card", "--json", check=3)
        done = self.devices("--device", "7", check=3)
        self.assertIn("no process reports device 7; there are: 0 Card-A, 1 Card-B\n", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_all_commands_tell_of_a_device_in_the_same_way(self):
        client = self.card(f"alloc 0 {DRAM} 1 25", f"alloc -1 {HEAP} 2 5")
        told = {}
        told["devices"] = self.rows()
        told["buffers"] = json.loads(memoir("buffers", "--json", "--dir", self.dir, check=0).stdout)["rows"]
        told["ps"] = self.ps("--wide")
        with subprocess.Popen(
            [MEMOIR, "log", "--dir", self.dir, "--json", "--lines", "40"], stdout=subprocess.PIPE, env=ENVIRONMENT
        ) as log:
            number = 100
            while log.poll() is None:
                number += 1
                self.tell(client, f"alloc 0 {DRAM} {number} 25", f"alloc -1 {HEAP} {number} 5")
            told["log"] = list(map(json.loads, log.stdout))
        for command, rows in told.items():
            with self.subTest(command):
                devices = {(r["ordinal" if "ordinal" in r else "device"], r["device_name"], r["device_uid"]) for r in rows}
                host = set() if command == "devices" else {(None, None, None)}
                self.assertEqual(devices, {(0, "Card-A", "Card-A")} | host)

    def test_csv_has_a_row_for_each_space(self):
        self.card(f"alloc 0 {DRAM} 1 25000000", f"alloc 0 {CB} 1 1000", f"alloc 0 {L1} 1 1000")
        rows = list(csv.DictReader(io.StringIO(self.devices("--csv").stdout, newline="")))
        self.assertEqual([r["space"] for r in rows], ["cb", "dram", "l1"])
        self.assertEqual((rows[1]["ordinal"], rows[1]["device_name"]), ("0", "Card-A"))
        self.assertEqual((rows[1]["used"], rows[1]["percent"]), ("25000000", "25.00"))
        self.assertEqual((rows[0]["capacity"], rows[0]["used"]), ("", "1000"))
        self.assertEqual(len(self.devices("--csv", "--no-header").stdout.splitlines()), 3)
        (row,) = self.rows("--by", "device", "--show", "used", "--where", "space=cb or space=l1")
        self.assertEqual((row["device"], row["used"]), ("0 Card-A", 2000))

    def test_check_fails_when_something_is_full(self):
        self.card(f"alloc 0 {DRAM} 1 50000000", f"alloc 0 {L1} 1 500000", f"alloc 0 {CB} 1 300000")
        self.devices("--check", "81")
        self.devices("--check", "80", check=1)  # L1 as a whole, no space alone

    def test_nothing_is_no_error_and_says_what_to_do(self):
        done = self.devices()
        self.assertEqual(done.stdout, "")
        self.assertIn(f"memoir demo --dir {self.dir}", done.stderr)
        self.assertIn("no process reports device 0, nor any other\n", self.devices("--device", "0", check=3).stderr)
        self.assertEqual(self.rows(), [])

    def test_bad_command_lines(self):
        for arguments in (["--json", "--csv"], ["--watch=0"], ["--watch", "--check", "5"]):
            self.devices(*arguments, check=2)
        done = memoir("devices", "--dir", "/nonexistent", check=1)
        self.assertIn("/nonexistent", done.stderr)

    def test_watch_into_a_pipe_gives_pictures_one_after_another(self):
        self.card(f"alloc 0 {DRAM} 1 25000000")
        watch = subprocess.Popen(
            [MEMOIR, "devices", "--watch=0.05", "--dir", self.dir],
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        self.addCleanup(watch.stdout.close)
        seen = 0
        while seen < 3:
            seen += watch.stdout.readline().decode().startswith("Device 0")
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(60), -signal.SIGINT)

    def test_names_from_strangers_reach_the_terminal_harmless(self):
        self.start_scripted("device 0 \x1b[31mred\x07 0 0", f"alloc 0 {DRAM} 1 1")
        text = self.devices().stdout
        self.assertNotIn("\x1b", text)
        self.assertIn("[31mred", text)

    def test_what_a_region_counts_for_the_dead_is_left_out_and_told(self):
        dead = subprocess.Popen(["true"])
        dead.wait()
        region = bytearray(8576)
        struct.pack_into("<IIQI", region, 0, 3, 1, 1, 1)
        struct.pack_into("<QI", region, 32, 0xA51C, 4)
        for chip in range(16):
            struct.pack_into("<I", region, 88 + 48 * chip, 0xFFFFFFFF)
        struct.pack_into("<i4x5Q", region, 856, dead.pid, 5000000, 0, 0, 0, 0)
        folder = self.dir / "regions"
        folder.mkdir()
        path = folder / f"tt_device_{0xA51C}_memory"
        path.write_bytes(region)
        path.chmod(0o600)
        done = self.devices(environment={"MEMOIR_TT_REGIONS": str(folder)})
        self.assertNotRegex(done.stdout, r"DRAM +5\.0 MB")
        # Nothing else is there: the device itself is known only from the ghost.
        self.card(f"alloc 0 {DRAM} 1 1")
        text = self.devices(environment={"MEMOIR_TT_REGIONS": str(folder)}).stdout
        self.assertIn("region of device 4 still counts 5.0 MB of 1 dead process", text)


class Scenarios(CommandTest):
    """What the allocation server of old was shown with, here without a server."""

    STORY = (  # four buffers in L1, four in DRAM, eight more in L1: 12 MB and 100 MB
        [f"alloc 0 {L1} {i} 1048576" for i in range(4)]
        + [f"alloc 0 {DRAM} {i} 26214400" for i in range(4)]
        + [f"alloc 0 {L1} {i} 1048576" for i in range(4, 12)]
    )

    def start(self):
        return self.start_scripted("device 0 Card 12884901888 78643200", *self.STORY)

    def used(self, arguments=()):
        devices = json.loads(memoir("devices", "--json", "--dir", self.dir, *arguments, check=0).stdout)
        return {s["space"]: (s["used"], s["blocks"], s["processes"]) for s in devices["rows"]}

    def test_three_clients_at_once_are_one_sum(self):
        clients = [self.start() for _ in range(3)]
        self.assertEqual(self.used(), {"dram": (314572800, 12, 3), "l1": (37748736, 36, 3)})
        self.tell(clients[1], *[f"free 0 {L1} {i}" for i in range(6)])
        self.assertEqual(self.used()["l1"], (31457280, 30, 3))

    def test_clients_one_after_another_start_from_nothing(self):
        for _ in range(3):
            client = self.start()
            self.assertEqual(self.used(), {"dram": (104857600, 4, 1), "l1": (12582912, 12, 1)})
            client.stdin.close()
            client.wait()
            self.assertEqual(self.used(), {})

    def test_kill_9_with_buffers_circular_buffers_and_kernels_leaves_nothing(self):
        client = self.start()
        self.tell(client, f"fill 0 {CB} 800 28000", f"fill 0 {KERNEL} 30 6800")
        self.assertEqual(self.used()["cb"], (22400000, 800, 1))
        client.kill()
        client.wait()
        self.assertEqual({figures for figures in self.used().values()}, {(0, 0, 0)})

    def test_several_monitors_see_the_same(self):
        client = self.start()
        seen = []
        monitors = [threading.Thread(target=lambda: seen.append(self.used())) for _ in range(8)]
        for monitor in monitors:
            monitor.start()
        for monitor in monitors:
            monitor.join()
        self.assertEqual(len(seen), 8)
        self.assertTrue(all(one == seen[0] for one in seen))
        self.tell(client, f"free 0 {DRAM} 0")
        self.assertEqual(self.used()["dram"], (78643200, 3, 1))
