"""memoir flame: the picture, and what other tools get, decoded here from their formats' own descriptions."""

import fcntl
import gzip
import json
import os
import pty
import re
import struct
import subprocess
import termios

from cli_support import BUILD, ENVIRONMENT, memoir
from sites_support import CLIENT, FIGURES, SitesTest


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(data):
    """Fields of a protocol buffer message: {number: [values]}; numbers as they are, the rest as bytes."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            assert at + value <= len(data)
            value, at = data[at : at + value], at + value
        else:
            assert tag & 7 == 0
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def packed(data):
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def one(fields, number):
    return fields.get(number, [0])[0]


class Pprof:
    """The message Profile of pprof, with names instead of numbers."""

    def __init__(self, data):
        top = message(gzip.decompress(data))
        self.strings = [s.decode() for s in top[6]]
        assert self.strings[0] == ""
        text = self.strings.__getitem__
        self.types = [(text(one(t, 1)), text(one(t, 2))) for t in map(message, top[1])]
        self.default = text(one(top, 14))
        self.time_ns = one(top, 9)
        self.mappings = {one(m, 1): m for m in map(message, top[3])}
        self.files = {i: (text(one(m, 5)), text(one(m, 6))) for i, m in self.mappings.items()}
        functions = {one(f, 1): (text(one(f, 2)), text(one(f, 4))) for f in map(message, top[5])}
        self.locations = {}
        for location in map(message, top[4]):
            lines = [(functions[one(line, 1)], one(line, 2)) for line in map(message, location.get(4, []))]
            self.locations[one(location, 1)] = (one(location, 2), one(location, 3), lines)
        self.samples = []
        for sample in map(message, top[2]):
            labels = {text(one(label, 1)): text(one(label, 2)) for label in map(message, sample.get(3, []))}
            self.samples.append((packed(sample[1][0]), packed(sample[2][0]), labels))

    def names(self, sample):
        return [name for i in sample[0] for (name, _), _ in self.locations[i][2]]


class Flame(SitesTest):
    def setUp(self):
        super().setUp()
        self.client = self.start(
            "left 1 40000", "left 2 2000", "right 3 15000", "inlined 4 7000", "direct 5 6000", "device 6 4096", "free 2",
            "churn 1000 16",
        )
        self.pid = str(self.client.pid)

    def flame(self, *arguments, check=0, environment=None):
        return memoir("flame", "--dir", self.dir, *arguments, check=check, environment=environment)

    # ---- the picture ----

    def test_text_where_there_is_no_terminal(self):
        text = self.flame(self.pid).stdout
        self.assertRegex(text.splitlines()[0], r"^ +72\.1 kB  100\.0 %  all$")
        self.assertRegex(text, r"(?m)^ +40\.0 kB   55\.5 %  +path_left\n +40\.0 kB   55\.5 %  +ask$")
        self.assertRegex(text, r"(?m)^ +7\.0 kB +9\.7 % +path_inlined\n +7\.0 kB +9\.7 % +ask_inlined$")
        self.assertTrue(text.endswith(f"sites_client (PID {self.pid}): 72.1 kB live\n"))
        self.assertEqual(len(self.flame(self.pid, "--depth", "3").stdout.splitlines()), 5)

    def test_a_picture_of_any_width(self):
        for width in (20, 33, 80, 200):
            lines = self.flame(self.pid, "--width", width).stdout.splitlines()
            picture = lines[: lines.index("")]
            self.assertEqual({len(line) for line in picture[:4]}, {width})
            self.assertLessEqual(max(map(len, picture)), width)
        lines = self.flame(self.pid, "--width", "100").stdout.splitlines()
        row = next(line for line in lines if "path_left" in line)
        cells = {m[1]: len(m[0]) for m in re.finditer(r"▏([a-z_]+)[^▏]*", row)}
        self.assertEqual((cells["path_left"], cells["path_right"]), (55, 21))

    def test_degrades_without_colour_and_utf8(self):
        plain = self.flame(self.pid, "--width", "60", environment={"LC_ALL": "C"}).stdout
        self.assertTrue(plain.isascii())
        self.assertIn("|path_left", plain)
        self.assertNotIn("\033", plain)
        colored = self.flame(self.pid, "--width", "60", "--color", "always").stdout
        self.assertIn("\033[30;43m▏main", colored)
        self.assertIn("\033[30;43m sites_client 100.0 % \033[0m", colored)

    def test_fits_the_terminal(self):
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 71, 0, 0))
        child = subprocess.Popen(
            [BUILD / "src/cli/memoir", "flame", "--dir", self.dir, self.pid, "--color", "never"],
            stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary, env=ENVIRONMENT,
        )
        os.close(secondary)
        data = b""
        while True:
            try:
                piece = os.read(primary, 65536)
            except OSError:
                break
            if not piece:
                break
            data += piece
        os.close(primary)
        self.assertEqual(child.wait(), 0)
        lines = data.decode().splitlines()
        self.assertEqual(len(lines[0]), 71)
        self.assertTrue(lines[0].startswith("▏all  72.1 kB"))

    def test_focus_and_direction(self):
        text = self.flame(self.pid, "--function", "^path_(left|right)$").stdout
        self.assertNotIn("main", text)
        self.assertRegex(text, r"(?m)^ +55\.0 kB  100\.0 %  all\n +40\.0 kB +72\.7 % +path_left$")
        self.assertIn("55.0 kB live; 17.1 kB elsewhere", text)
        text = self.flame(self.pid, "--inverted").stdout
        self.assertRegex(text, r"^.* all\n +55\.0 kB +76\.3 % +ask\n +40\.0 kB +55\.5 % +path_left\n")
        self.assertRegex(self.flame(self.pid, "--allocated", "-i").stdout, r"(?m)^ +16\.0 kB +17\.8 %    path_churn$")
        self.assertRegex(self.flame(self.pid, "--blocks", "-i").stdout, r"(?m)^ +2 blocks +40\.0 %    ask$")
        self.assertRegex(self.flame(self.pid, "--space", "dram").stdout, r"^ +4\.1 kB  100\.0 %  all\n")
        self.assertIn("no stack", self.flame(self.pid, "--function", "nowhere", check=3).stderr)
        self.assertIn("invalid regular expression", self.flame(self.pid, "--function", "(", check=2).stderr)

    def test_bad_command_lines(self):
        for arguments in ([], [self.pid, "x"], ["--width", "3", self.pid], ["--export", "svg", self.pid], ["--live", "--blocks", self.pid]):
            with self.subTest(arguments):
                self.assertEqual(self.flame(*arguments, check=2).stdout, "")
        self.flame("99999999999", check=3)

    # ---- for other tools ----

    def export(self, form, *arguments):
        path = self.files / form
        done = self.flame(self.pid, "--export", form, path, *arguments)
        self.assertEqual(done.stdout, "")
        return path.read_bytes()

    def test_pprof(self):
        profile = Pprof(self.export("pprof"))
        self.assertEqual(
            profile.types,
            [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")],
        )
        self.assertEqual(profile.default, "inuse_space")
        sites = self.document(self.pid, "--by", "stack")
        sums = [sum(values) for values in zip(*(s[1] for s in profile.samples))]
        self.assertEqual(sums, [sites["allocated_blocks"], sites["allocated"], sites["blocks"], sites["bytes"]])
        # Stack by stack the same, with the calls that were compiled into each other.
        ours = {tuple(f["function"] for f in r["frames"]): [r[f] for f in FIGURES] for r in sites["sites"]}
        # What has no name is "libc.so.6+0x2724a" there: libc's own symbols are not everywhere.
        named = [tuple(None if "+0x" in name else name for name in profile.names(s)) for s in profile.samples]
        theirs = {n: [s[1][3], s[1][2], s[1][1], s[1][0]] for n, s in zip(named, profile.samples)}
        self.assertEqual(theirs, ours)
        labels = {profile.names(s)[0]: s[2] for s in profile.samples}
        self.assertEqual(labels["path_device"], {"space": "dram", "device": "CARD-0"})
        self.assertEqual(labels["ask"], {"space": "heap"})
        # Addresses lie in their mappings, whose build-ids are those of the files.
        for mapping, address, lines in profile.locations.values():
            m = profile.mappings[mapping]
            self.assertTrue(m[2][0] <= address < m[3][0])
            self.assertTrue(lines)
        build_id = dict(profile.files.values())[str(CLIENT)]
        self.assertIn(bytes.fromhex(build_id), CLIENT.read_bytes())
        self.assertEqual(len(build_id), 40)
        lines = {name: line for _, _, ls in profile.locations.values() for (name, file), line in ls if file.endswith("sites_client.c")}
        row = next(r for r in sites["sites"] if r["function"] == "ask")
        self.assertEqual(lines["ask"], row["line"])

    def test_folded(self):
        for flag, field in (("--live", "bytes"), ("--allocated", "allocated"), ("--blocks", "blocks")):
            lines = self.export("folded", flag).decode().splitlines()
            sites = self.document(self.pid, "--by", "stack")["sites"]
            theirs = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
            self.assertEqual(theirs, {r["stack"]: r[field] for r in sites if r[field]})
        out = self.flame(self.pid, "--export", "folded").stdout
        self.assertEqual(out.encode(), self.export("folded"))
        self.assertEqual(self.export("folded", "--space", "dram").count(b"\n"), 1)

    def test_speedscope(self):
        document = json.loads(self.export("speedscope"))
        self.assertEqual(document["$schema"], "https://www.speedscope.app/file-format-schema.json")
        self.assertEqual(set(document), {"$schema", "exporter", "name", "activeProfileIndex", "shared", "profiles"})
        frames = document["shared"]["frames"]
        self.assertTrue(all(set(f) <= {"name", "file"} and f["name"] for f in frames))
        sites = self.document(self.pid, "--by", "stack")
        totals = [sites[f] for f in ("bytes", "allocated", "blocks", "allocated_blocks")]
        self.assertEqual([p["endValue"] for p in document["profiles"]], totals)
        for profile in document["profiles"]:
            self.assertEqual(set(profile), {"type", "name", "unit", "samples", "weights", "startValue", "endValue"})
            self.assertEqual((profile["type"], profile["startValue"]), ("sampled", 0))
            self.assertIn(profile["unit"], ("bytes", "none"))
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            self.assertEqual(sum(profile["weights"]), profile["endValue"])
        live = document["profiles"][0]
        theirs = {";".join(frames[i]["name"] for i in s): w for s, w in zip(live["samples"], live["weights"])}
        self.assertEqual(theirs, {r["stack"]: r["bytes"] for r in sites["sites"] if r["bytes"]})
        self.assertEqual(json.loads(self.export("speedscope", "--allocated"))["activeProfileIndex"], 1)

    def test_a_saved_moment_gives_the_same(self):
        saved = self.files / "moment"
        self.sites(self.pid, "--save", saved)
        for form in ("folded", "speedscope"):
            self.assertEqual(self.flame(saved, "--export", form).stdout.encode(), self.export(form))
        self.flame(saved, "--export", "pprof", self.files / "again")
        theirs, ours = Pprof((self.files / "again").read_bytes()), Pprof(self.export("pprof"))
        self.assertEqual([theirs.names(s) for s in theirs.samples], [ours.names(s) for s in ours.samples])
        self.assertEqual(theirs.files, ours.files)
        self.assertEqual(self.flame(saved).stdout, self.flame(self.pid).stdout)

    def test_what_cannot_be_written_is_told(self):
        self.assertIn("cannot write", self.flame(self.pid, "--export", "folded", "/proc/none/x", check=1).stderr)
