"""memoir devices --watch on a real screen: tmux draws it, keys go in, the terminal comes back."""

import os
import signal

from cli_support import CB, DRAM, KERNEL, L1, wait_for
from screen_support import ScreenTest


class Watch(ScreenTest):
    def open(self, *arguments, **screen):
        self.open_screen("devices", "--watch=0.1", "--dir", self.dir, *arguments, **screen)

    def card(self, *lines):
        return self.start_scripted("device 0 Card-A 100000000 1000000", *lines)

    def test_figures_change_while_one_looks(self):
        client = self.card(f"alloc 0 {DRAM} 1 25000000")
        self.open()
        self.see(r"DRAM +25\.0 MB / 100\.0 MB .* 25\.0 %")
        self.tell(client, f"alloc 0 {DRAM} 2 50000000", f"alloc 0 {CB} 2 250000")
        self.see(r"DRAM +75\.0 MB .* 75\.0 %")
        self.see(r"CBs +250\.0 kB +▓+ +1 block")
        client.kill()
        client.wait()
        self.see("1 gone, 75.3 MB no longer counted")
        self.see(r"DRAM +0 B / 100\.0 MB")

    def test_pages_and_help(self):
        self.card(f"alloc 0 {DRAM} 1 90000000", f"alloc 0 {L1} 1 300000")
        self.open()
        self.see(r"\[1 overview\]")
        self.press("2")
        screen = self.see(r"\[2 charts\][\s\S]*⣿")
        self.assertIn("Device 0 Card-A  DRAM  90.0 MB / 100.0 MB  90.0 %", screen)
        self.assertIn("Device 0 Card-A  L1 total", screen)
        self.assertRegex(screen, r"(?m)^ +-[0-9.ms ]+ +now$")
        self.press("-")
        self.see(r"-2\dm?|-2[0-9.]+ s|-27")
        self.press("?")
        self.see(r"Tab, left, right")
        self.press("Escape")
        self.see(r"\[2 charts\]")
        self.press("Tab")
        self.see(r"\[3 processes\]")
        self.press("q")
        self.see("^ended with 0$")

    def test_a_process_is_chosen_and_its_buffers_are_shown(self):
        small = self.card("tag little", f"alloc 0 {DRAM} 7 1000000")
        large = self.card("tag big", f"alloc 0 {DRAM} 9 60000000", f"alloc 0 {KERNEL} 3 500")
        self.open()
        self.press("3")
        self.see(rf"^ *{large.pid} [\s\S]*^ *{small.pid} ")  # the largest first
        self.press("Down")
        wait_for(lambda: self.is_marked(small.pid), "the mark on the second line")
        self.press("r")  # turned round, the chosen one stays chosen
        self.see(rf"^ *{small.pid} [\s\S]*^ *{large.pid} ")
        wait_for(lambda: self.is_marked(small.pid), "the mark on the first line")
        self.press("Down", "Enter")
        screen = self.see(rf"scripted_client \(PID {large.pid}\): 2 blocks, 60\.0 MB")
        self.assertRegex(screen, r"dram +60\.0 MB .*big .*scripted_cl")
        self.press("Escape")
        self.see(r"\[3 processes\]")
        self.press("s")
        self.see("by rss")

    def test_it_follows_the_size_of_the_screen(self):
        self.card(f"alloc 0 {DRAM} 1 25000000")
        self.open()
        wide = self.see(r"DRAM .*1 block$")
        self.tmux("resize-window", "-x", "60", "-y", "10")
        narrow = self.see(r"DRAM .* 25\.0 %$")
        self.assertLessEqual(max(map(len, narrow.splitlines())), 60)
        self.tmux("resize-window", "-x", "120", "-y", "40")
        self.see(r"DRAM .{80,}1 block$")
        self.assertGreater(max(map(len, wide.splitlines())), 70)

    def test_a_small_screen_scrolls(self):
        self.card(*[f"device {i} Card-{i} 1000000 1000000" for i in range(1, 7)])
        self.open(rows=10)
        self.see(r"Device 0 Card-A[\s\S]*lines 1-7 of ")
        self.press("NPage")
        self.see(r"lines [2-9]")
        self.press("End")
        self.see(r"Card-6")
        self.press("Home")
        self.see(r"Device 0 Card-A[\s\S]*lines 1-7 of ")

    def test_the_terminal_comes_back_on_every_way_out(self):
        self.card(f"alloc 0 {DRAM} 1 25000000")
        for way, status in (("q", 0), ("C-c", 0), (signal.SIGTERM, 128 + signal.SIGTERM)):
            with self.subTest(way):
                self.open()
                self.see("DRAM")
                if isinstance(way, str):
                    self.press(way)
                else:
                    os.kill(self.pid_of_view(), way)
                self.assert_restored()
                self.assertIn(f"ended with {int(status)}\n", self.screen())
                self.tmux("kill-server")

    def test_colours_where_wanted(self):
        client = self.card(f"alloc 0 {DRAM} 1 25000000")
        self.open()
        self.see("DRAM")
        bar = next(line for line in self.screen("-e").splitlines() if "DRAM" in line)
        self.assertIn("\x1b[32m", bar)
        self.tell(client, f"alloc 0 {DRAM} 2 70000000")
        self.see(r"95\.0 %")
        bar = next(line for line in self.screen("-e").splitlines() if "DRAM" in line)
        self.assertIn("31m", bar)
        self.tmux("kill-server")
        self.open(environment={"NO_COLOR": "1"})
        self.see(r"95\.0 %")
        self.assertNotRegex(self.screen("-e"), "\x1b\\[[0-9;]*3[1-3]m")

    def test_ascii_where_nothing_else_is_shown(self):
        self.card(f"alloc 0 {DRAM} 1 50000000")
        self.open(environment={"LC_ALL": "C", "LANG": "C"})
        self.see(r"DRAM +50\.0 MB / 100\.0 MB +#+\.+ ")
        self.press("2")
        self.assertTrue(self.see(r"12.5 MB|\|.*#").isascii())

    def test_a_dumb_terminal_gets_pictures_one_after_another(self):
        self.card(f"alloc 0 {DRAM} 1 50000000")
        self.open(environment={"TERM": "dumb"})
        self.see(r"Device 0[\s\S]*Device 0")
        self.assertNotIn("q quit", self.screen())

    def test_nothing_to_see_says_what_to_do(self):
        self.open()
        self.see(f"memoir demo --dir {self.dir}")
        self.press("q")
        self.see("^ended with 0$")
