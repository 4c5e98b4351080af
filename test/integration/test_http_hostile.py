"""memoird's HTTP server against clients that mean harm: slow, greedy, malformed, foreign."""

import http.client
import json
import os
import pathlib
import pwd
import re
import resource
import signal
import socket
import subprocess
import sys
import unittest

from daemon_fixture import NOBODY, PATIENCE_S, Process, as_user, needs_root
from http_support import HttpTest, read_answer


# More connections than there are places, which ask for much and take nothing of it; new ones for those that are closed.
FLOOD = """
import select, socket, sys
def one():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    s.sendall(b"GET /api/v1/openapi.json HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n" * 100)
    return s
kept = [one() for _ in range(200)]
print("full", flush=True)
while True:
    for i, s in enumerate(kept):
        try:
            s.send(b"x", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            try:
                kept[i] = one()
            except OSError:
                pass
"""
PROBE = """
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
c.request("GET", "/api/v1/openapi.json")
print(c.getresponse().status)
"""


def raise_limit():
    """As many descriptors as we may have: these tests open many sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Hostile(HttpTest):
    def setUp(self):
        super().setUp()
        raise_limit()

    def assertAlive(self, token):
        self.assertEqual(self.ask("/api/v1/self", token=token).status, 200)

    def statuses(self, requests):
        """What each of these, sent alone, gets: its status, None when the connection was closed without a word."""
        return {request: read_answer(self.raw(request))[0] for request in requests}


class Slow(Hostile):
    def test_who_sends_byte_by_byte_does_not_keep_his_place(self):
        daemon = self.serve("--stall", "500ms")
        token = self.token()
        head = "GET /api/v1/self HTTP/1.1\r\nHost: localhost\r\n"
        slow = [self.raw(data) for data in ("", "G", head, head + "X-A: b\r\n" * 3,
                                            "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n"
                                            f"Origin: http://localhost\r\nContent-Type: application/json\r\n\r\n{{")]
        for sock in slow:
            sock.setblocking(False)
        left = list(slow)

        def all_closed():
            for sock in list(left):
                try:
                    sock.send(b"X")  # he goes on and on
                    if sock.recv(65536) == b"":
                        left.remove(sock)
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    left.remove(sock)
            return not left

        self.wait_until(all_closed, "all slow clients are closed")
        self.assertAlive(token)
        self.assertIsNone(daemon.popen.poll())
        self.assertGreaterEqual(self.ask("/api/v1/self", token=token).json()["http"]["closed_slow"], len(slow))

    def test_many_who_only_hold_a_place_make_room_for_one_who_asks(self):
        self.serve("--http-connections-max", "64")
        token = self.token()
        holders = [self.raw("GET / HT") for _ in range(200)]
        self.assertAlive(token)
        closed = 0
        for sock in holders:
            sock.setblocking(False)
            try:
                closed += sock.recv(10) == b""
            except BlockingIOError:
                pass
            except ConnectionResetError:
                closed += 1
        self.assertGreater(closed, 100)

    @needs_root
    def test_a_user_who_floods_the_port_does_not_keep_others_out(self):
        """By TCP, where only the kernel tells whose a connection is."""
        self.serve("--http-connections-max", "64", "--stall", "10m")
        flood = Process([*as_user(NOBODY), sys.executable, "-c", FLOOD, str(self.port)])
        self.addCleanup(flood.close)
        flood.out.wait("^full$")
        for uid in (0, 4242):
            for _ in range(5):
                done = subprocess.run([*as_user(uid), sys.executable, "-c", PROBE, str(self.port)], capture_output=True,
                                      text=True, timeout=PATIENCE_S, check=False)
                self.assertEqual(done.stdout.strip(), "200", done.stderr)

    def test_nobody_keeps_all_places_by_sending_half_a_body(self):
        self.serve("--http-connections-max", "32", "--stall", "10m")
        token = self.token()
        start = ("POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
                 "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 60000\r\n\r\n")
        holders = [self.raw(start) for _ in range(32)]
        for sock in holders:  # each has its place, and is asked for its body
            self.assertIn(b"100 Continue", sock.recv(100))

        def answered():
            try:
                return self.ask("/api/v1/self", token=token).status == 200
            except (OSError, http.client.HTTPException):
                return False

        self.wait_until(answered, "somebody who may ask gets a place")
        self.assertEqual(len(holders), 32)

    def test_who_never_reads_costs_nothing_but_his_place(self):
        daemon = self.serve("--stall", "500ms", "--history=no")
        token = self.token("all", "--user", "0")
        request = (f"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
        deaf = []
        for _ in range(20):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(PATIENCE_S)
            sock.connect(("127.0.0.1", self.port))
            self.addCleanup(sock.close)
            sock.sendall(request.encode() * 100)
            deaf.append(sock)
        streams = [self.raw(f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
                   for _ in range(20)]
        self.assertAlive(token)
        before = self.ask("/api/v1/self", token=token).json()["http"]["closed_slow"]
        self.wait_until(lambda: self.ask("/api/v1/self", token=token).json()["http"]["closed_slow"] >= before + 20,
                        "those who do not take their answers are closed")
        self.assertEqual(len(streams), 20)
        self.assertIsNone(daemon.popen.poll())


class Greedy(Hostile):
    def test_what_is_too_large_is_refused(self):
        self.serve()
        token = self.token()
        host = "Host: localhost\r\n"
        auth = f"Authorization: Bearer {token}\r\n"
        origin = "Origin: http://localhost\r\nContent-Type: application/json\r\n"
        seen = self.statuses({
            f"GET /{'a' * 9000} HTTP/1.1\r\n{host}\r\n": 414,
            f"GET /{'a' * 200000} HTTP/1.1\r\n{host}\r\n": None,
            f"GET /api/v1/query?{'&'.join('a' * 40)} HTTP/1.1\r\n{host}{auth}\r\n": None,
            f"GET / HTTP/1.1\r\n{host}X-A: {'a' * 9000}\r\n\r\n": None,
            f"GET / HTTP/1.1\r\n{host}{''.join(f'X-{i}: y' + chr(13) + chr(10) for i in range(800))}\r\n": None,
            f"GET / HTTP/1.1\r\n{host}X-A: {'a' * 200000}\r\n\r\n": None,
            f"POST /api/v1/login HTTP/1.1\r\n{host}{origin}Content-Length: 70000\r\n\r\n": None,
            f"POST /api/v1/login HTTP/1.1\r\n{host}{origin}Content-Length: 99999999999999999999\r\n\r\n": None,
        })
        for (request, status), wanted in zip(seen.items(), (414, 414, 414, 431, 431, 431, 413, 0)):
            if wanted and status is not None:
                self.assertEqual(status, wanted, request[:60])
            else:  # MHD closes what it cannot even hold
                self.assertIn(status, (None, 400, 413, 414, 431), request[:60])
        self.assertAlive(token)

    def test_answers_of_limits_are_problems(self):
        self.serve()
        status, head, body = read_answer(self.raw(f"GET /{'a' * 8500} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        self.assertEqual(status, 414)
        self.assertIn("application/problem+json", head)
        self.assertEqual(json.loads(body)["status"], 414)
        status, head, body = read_answer(self.raw(f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {'a' * 8500}\r\n\r\n"))
        self.assertEqual((status, json.loads(body)["status"]), (431, 431))


class Malformed(Hostile):
    def test_nothing_leads_out_of_the_tree(self):
        self.serve()
        passwd = pathlib.Path("/etc/passwd").read_text().split("\n")[0]
        for path in ("/../etc/passwd", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd",
                     "/static/..\\..\\etc\\passwd", "/%2e%2e%5cetc", "/a%00.html", "/%00", "/.%2e/", "/%c0%ae%c0%ae/",
                     "//etc/passwd", "/file:///etc/passwd", "http://localhost/../etc/passwd", "/....//....//etc/passwd"):
            status, head, body = read_answer(self.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            self.assertNotIn(passwd, body.decode("latin-1"))
            self.assertIn(status, (200, 400, 404), path)
            if status == 200:
                self.assertIn("text/html", head)  # the dashboard, whose views have addresses

    def test_nothing_that_is_sent_becomes_a_header(self):
        self.serve()
        token = self.token("all", "--user", "0")
        for target in ("/login?code=x%0d%0aSet-Cookie:%20a=b", "/%0d%0aX-Evil:%201", "/api/v1/query?table=%0d%0aX-Evil:1",
                       f"/api/v1/processes/{os.getpid()}/profile?format=pprof%0d%0aX-Evil:%201"):
            request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            status, head, _ = read_answer(self.raw(request))
            self.assertEqual(status, 400, target)
            self.assertNotIn("evil", head.lower())
            self.assertNotIn("a=b", head)
        heads = "Host: localhost\r\nOrigin: http://localhost\r\n"
        _, head, body = read_answer(self.raw(f"GET /nothing.js HTTP/1.1\r\n{heads}X: \x01\x02\r\n\r\n"))
        self.assertNotIn("\x01", head + body.decode("latin-1"))

    def test_requests_that_two_servers_could_read_differently_are_refused(self):
        self.serve()
        token = self.token()
        smuggled = f"GET /api/v1/self HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        start = "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n" \
                "Content-Type: application/json\r\n"
        n = len(smuggled)
        for heads in (f"Content-Length: 0\r\nContent-Length: {n}\r\n", f"Content-Length: {n}\r\nContent-Length: 0\r\n",
                      f"Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n",
                      "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "Transfer-Encoding: chunked\r\n",
                      "Transfer-Encoding: identity, chunked\r\n", "Transfer-Encoding: xchunked\r\n",
                      "Content-Length: +3\r\n", "Content-Length: -1\r\n", "Content-Length: 0x10\r\n",
                      "Content-Length: 3, 3\r\n", "Content-Length: \r\n"):
            sock = self.raw(start + heads + "\r\n" + smuggled)
            data = b""
            try:
                while piece := sock.recv(65536):
                    data += piece
            except (ConnectionResetError, TimeoutError):
                pass
            statuses = set(re.findall(rb"HTTP/1\.1 (\d+)", data))
            self.assertLessEqual(statuses, {b"400", b"411", b"413"}, heads)  # nobody answered the second one
        for heads in ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"):
            request = f"GET / HTTP/1.1\r\nHost: localhost\r\n{heads}\r\n0\r\n\r\n{smuggled}"
            sock, data = self.raw(request), b""
            try:
                while piece := sock.recv(65536):
                    data += piece
            except ConnectionResetError:
                pass
            self.assertNotIn(b"HTTP/1.1 200", data, heads)

    def test_garbage_is_refused(self):
        self.serve("--stall", "1s")
        token = self.token()
        for data in (b"\x00" * 100, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100, b"\r\n" * 50,
                     b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"{\"query\":{}}\n", os.urandom(4000)):
            status, _, body = read_answer(self.raw(data))
            self.assertNotIn(b"Traceback", body)
            self.assertIn(status, (None, 0, 200, 400, 404, 405, 421, 431, 501, 505), data[:40])
        self.assertAlive(token)


class Foreign(Hostile):
    def test_another_name_is_not_ours(self):
        """DNS rebinding: a page of evil.example whose name leads here."""
        self.serve()
        token = self.token()
        for host in ("evil.example", f"evil.example:{self.port}", "localhost.evil.example", "127.0.0.1.evil.example",
                     "192.168.0.1", "[::2]"):
            request = f"GET /api/v1/self HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
            self.assertEqual(read_answer(self.raw(request))[0], 421, host)
            self.assertEqual(read_answer(self.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))[0], 421, host)

    def test_pages_of_others_cannot_use_a_browsers_cookie(self):
        self.serve()
        cookie = self.log_in()
        own = f"http://localhost:{self.port}"
        self.assertEqual(self.ask("/api/v1/session", cookie=cookie, Origin=own).status, 200)
        self.assertEqual(self.ask("/api/v1/session", cookie=cookie, Sec_Fetch_Site="same-origin").status, 200)
        for origin in ("http://evil.example", "null", f"https://localhost:{self.port}", "http://localhost:1",
                       f"http://127.0.0.1:{self.port}", f"http://evil.example:{self.port}", ""):
            for path, method in (("/api/v1/session", "GET"), ("/api/v1/logout", "POST"), ("/", "GET")):
                answer = self.ask(path, method, cookie=cookie, Origin=origin)
                self.assertEqual(answer.status, 403, (origin, path))
                self.assertIsNone(answer.headers["Access-Control-Allow-Origin"])
        for site in ("cross-site", "same-site"):
            self.assertProblem(self.ask("/api/v1/session", cookie=cookie, Sec_Fetch_Site=site), 403, "foreign-origin")
        self.assertProblem(self.ask("/api/v1/logout", "POST", cookie=cookie), 403, "origin-missing")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = self.ask("/api/v1/login", "POST", cookie=cookie, body="{}", Origin=own, Content_Type=kind)
            self.assertProblem(answer, 415, "content-type")
        self.assertEqual(self.ask("/api/v1/session", cookie=cookie).status, 200)  # nothing of it logged out
        # Asked for by another method than ours: no preflight is ever answered.
        self.assertEqual(self.ask("/api/v1/logout", "OPTIONS", Origin="http://evil.example").status, 403)

    def test_a_page_of_another_site_cannot_log_a_browser_in(self):
        self.serve()
        path = self.link()
        path = path[path.index("/login"):]
        page = {"Accept": "text/html,*/*;q=0.8"}
        for site in ("cross-site", "same-site"):
            self.assertProblem(self.ask(path, Sec_Fetch_Site=site), 403, "foreign-origin")  # an image, say
            answer = self.ask(path, Sec_Fetch_Site=site, **page)
            self.assertEqual((answer.status, answer.headers["Set-Cookie"]), (200, None))
            self.assertIn("text/html", answer.headers["Content-Type"])
            self.assertIn("frame-ancestors 'none'", answer.headers["Content-Security-Policy"])
            text = answer.body.decode()
            self.assertIn(f"<strong>{pwd.getpwuid(os.geteuid()).pw_name}</strong>", text)
            self.assertIn(f'<a href="{path}">', text)
        answer = self.ask(path, Sec_Fetch_Site="same-origin", **page)  # the click on that page
        self.assertEqual((answer.status, answer.headers["Location"]), (303, "/"))
        self.assertTrue(answer.headers["Set-Cookie"])
        again = self.ask(path, Sec_Fetch_Site="cross-site", **page)
        self.assertEqual((again.status, again.headers["Location"], again.headers["Set-Cookie"]), (303, "/?link=used", None))

    def test_cookies_that_are_not_ours_let_nobody_in(self):
        self.serve()
        cookie = self.log_in()
        name, value = cookie.split("=")
        for bad in (f"{name}={value[:-1]}", f"{name}={value}x", f"{name}=", f"x{cookie}", f"{cookie}; {cookie}",
                    f"{name}={'A' * 43}", f"memoir-1={value}", f"{name}={value[::-1]}", f"{name}={'A' * 5000}"):
            self.assertProblem(self.ask("/api/v1/session", cookie=bad), 401, "login")
        self.assertEqual(self.ask("/api/v1/session", cookie=f"a=b; {cookie}; c=d").status, 200)

    def test_credentials_of_strangers_are_not_read(self):
        self.serve()
        token = self.token()
        tokens = self.state / "tokens"
        tokens.chmod(0o644)
        self.assertProblem(self.ask("/api/v1/self", token=token), 401, "token")
        tokens.chmod(0o600)
        self.assertEqual(self.ask("/api/v1/self", token=token).status, 200)


class Life(Hostile):
    def test_nothing_is_left_open_behind(self):
        daemon = self.serve()
        token = self.token("all", "--user", "0")
        self.assertAlive(token)
        self.assertEqual(self.ask(f"/api/v1/processes/{daemon.pid}/flame", token=token).status // 100, 4)

        def sockets():
            return sum(str(link).startswith("socket:") for link in self.descriptors(daemon.pid))

        self.wait_until(lambda: self.ask("/api/v1/self", token=token).json()["http"]["connections"] == 1,
                        "all other connections are closed")
        before = sockets()
        for i in range(60):
            sock = self.raw(("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET / HT", "", "x" * 30000 + "\r\n\r\n")[i % 4])
            if i % 4 == 0:
                read_answer(sock)
            sock.close()
        self.wait_until(lambda: self.ask("/api/v1/self", token=token).json()["http"]["connections"] == 1,
                        "all of them are closed again")
        self.wait_until(lambda: sockets() < before + 20, "descriptors are given back")  # helpers have a few

    def test_helpers_get_none_of_our_sockets(self):
        daemon = self.serve()
        token = self.token("all", "--user", "0")
        held = [self.raw("GET / HT") for _ in range(5)]
        self.ask(f"/api/v1/processes/{os.getpid()}/sites", token=token)  # starts the helper for symbols, maybe
        self.assertEqual(len(held), 5)
        own = {str(link) for link in self.descriptors(daemon.pid) if str(link).startswith("socket:")}
        listening = self.listening_inode()
        self.assertIn(f"socket:[{listening}]", own)

        def nobody_has_it():  # one that was just forked has everything for a moment
            for child in pathlib.Path(f"/proc/{daemon.pid}/task").glob("*/children"):
                for pid in child.read_text().split():
                    if f"socket:[{listening}]" in [str(link) for link in self.descriptors(pid)]:
                        return False
            return True

        self.wait_until(nobody_has_it, "no helper has the listening socket")

    def listening_inode(self):
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[1].endswith(f":{self.port:04X}"):
                return words[9]
        raise AssertionError("nobody listens")

    def test_it_ends_at_once_with_everything_open(self):
        daemon = self.serve()
        token = self.token("all", "--user", "0")
        auth = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
        opened = [self.raw(data) for data in (f"GET /api/v1/stream HTTP/1.1\r\n{auth}\r\n", "GET / HT", "",
                                              f"GET /api/v1/self HTTP/1.1\r\n{auth}\r\n",
                                              "GET /api/v1/self HTTP/1.1\r\nHost: localhost\r\n"
                                              f"Authorization: Bearer {'x' * 43}\r\n\r\n")]
        self.assertIn(b"event: hello", self.until(opened[0], b"event: hello"))
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertFalse(self.unix.exists())

    def until(self, sock, wanted):
        data = b""
        while wanted not in data:
            piece = sock.recv(65536)
            self.assertTrue(piece)
            data += piece
        return data


if __name__ == "__main__":
    unittest.main()
