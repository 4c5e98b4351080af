"""memoird's HTTP server as its clients see it: who gets in, and how answers arrive."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import unittest

from daemon_fixture import NOBODY, PATIENCE_S, as_user, is_whole_root, needs_root
from http_support import MEMOIR, HttpTest

ROOT = os.geteuid() == 0

# A daemon that has one answer to everything, or hangs up.
FAKE_DAEMON = """
import os, socket, sys
if os.geteuid() == 0:
    os.setuid(int(sys.argv[3]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while True:
    line = listener.accept()[0]
    if line.makefile().readline():
        line.sendall(sys.argv[2].encode())
    line.close()
"""


@contextlib.contextmanager
def fake_daemon(path, answer, uid=0):
    words = [sys.executable, "-c", FAKE_DAEMON, str(path), answer, str(uid)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() != "ready\n":
                raise AssertionError("the daemon did not start")
            yield
        finally:
            process.kill()
            path.unlink(missing_ok=True)


class WhoGetsIn(HttpTest):
    def test_nobody_without_a_credential_also_on_loopback(self):
        self.serve()
        for path in ("/api/v1/self", "/api/v1/processes", "/api/v1/stream", "/api/v1/session"):
            answer = self.ask(path)
            self.assertProblem(answer, 401, "login")
            self.assertIn("memoir open", answer.json()["detail"])
            self.assertTrue(answer.headers["WWW-Authenticate"].startswith("Bearer"))
        for path in ("/", "/api/v1/openapi.json"):  # pages and the description are no secret
            self.assertEqual(self.ask(path).status, 200)

    def test_the_kernel_vouches_for_who_comes_by_the_unix_socket(self):
        self.serve()
        answer = self.ask("/api/v1/session", unix=True)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json()["uid"], os.geteuid())
        self.assertEqual(answer.json()["role"], "control")

    def test_a_token_is_good_until_it_is_revoked(self):
        daemon = self.serve()
        token = self.token("ci", "--user", "0")
        self.assertEqual(len(token), 43)
        self.assertEqual(self.ask("/api/v1/self", token=token).status, 200)
        self.assertEqual(self.ask("/api/v1/session", token=token).json()["role"], "read")
        listed = json.loads(self.memoir("token", "list", "--json", "--state", self.state).stdout)["tokens"]
        self.assertEqual([(t["name"], t["uid"], t["role"]) for t in listed], [("ci", 0, "read")])
        tokens = self.state / "tokens"
        self.assertEqual(tokens.stat().st_mode & 0o777, 0o600)
        self.assertNotIn(token, tokens.read_text())
        self.assertEqual(self.memoir("token", "revoke", "ci", "--state", self.state).returncode, 0)
        self.assertProblem(self.ask("/api/v1/self", token=token), 401, "token")
        self.assertEqual(self.memoir("token", "revoke", "ci", "--state", self.state).returncode, 3)
        self.assertNotIn(token, "\n".join(daemon.err.lines))

    def token_by_socket(self, *words):
        """memoir token, told by the daemon at self.folder alone where to write. The default directory is an empty one of its
        own: what is wrong in here must not come to that of the machine."""
        if ROOT and not is_whole_root():
            self.skipTest("cannot hide the default directory")
        home = self.folder / "home"
        default = "/var/lib/memoir" if ROOT else f"{home}/memoir"
        hide = "mount -t tmpfs none /var/lib && mount -t tmpfs none /run || exit 9; " if ROOT else ""
        script = hide + f'"$@"; r=$?; [ ! -e {default} ] || exit 8; exit $r'
        return subprocess.run([*(["unshare", "-m"] if ROOT else []), "sh", "-c", script, "sh", str(MEMOIR), "token", *words],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env=os.environ | {"XDG_RUNTIME_DIR": str(self.folder), "XDG_STATE_HOME": str(home)})

    def test_a_token_goes_to_the_daemon_that_runs(self):
        self.serve()
        (self.folder / "memoird.sock").symlink_to(self.native)
        made = self.token_by_socket("add", "ci")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.ask("/api/v1/session", token=made.stdout.strip()).status, 200)

    def assertNoToken(self, made, pattern):
        self.assertEqual((made.returncode, made.stdout), (1, ""), made.stderr)
        self.assertRegex(made.stderr, pattern)
        self.assertEqual([path for path in self.folder.rglob("tokens") if path.stat().st_size], [])

    def test_no_token_goes_elsewhere_when_the_daemon_does_not_tell(self):
        state = self.folder / "gone"
        for answer, pattern in (("", r"memoird at \S+/memoird.sock does not tell where .*: .*name --state"),
                                ('{"hello": 1}\n', r"does not tell where it keeps its tokens"),
                                ('{"state": "relative"}\n', r"does not tell where it keeps its tokens"),
                                (json.dumps({"state": str(state)}) + "\n",
                                 rf"memoird at \S+/memoird.sock keeps its tokens in {state}: ask as its user, or name --state")):
            for word in ("add", "revoke"):
                with self.subTest(answer=answer, word=word), fake_daemon(self.folder / "memoird.sock", answer):
                    self.assertNoToken(self.token_by_socket(word, "ci"), pattern)
                self.assertFalse(state.exists())

    @needs_root
    def test_no_token_goes_where_another_user_says(self):
        trap = self.folder / "trap"
        trap.mkdir()
        inner = self.folder / "theirs"
        inner.mkdir()
        os.chown(inner, NOBODY, NOBODY)
        with fake_daemon(inner / "memoird.sock", json.dumps({"state": str(trap)}) + "\n", uid=NOBODY):
            (self.folder / "memoird.sock").symlink_to(inner / "memoird.sock")
            for word in ("add", "revoke"):
                self.assertNoToken(self.token_by_socket(word, "ci"), rf"another user \(uid {NOBODY}\): ask as its user")
        (self.folder / "memoird.sock").unlink()
        # Ours, that keeps its state where another can change it.
        with fake_daemon(self.folder / "memoird.sock", json.dumps({"state": str(inner)}) + "\n"):
            self.assertNoToken(self.token_by_socket("add", "ci"), rf"keeps its tokens in {inner}: ask as its user")

    def test_wrong_and_expired_tokens_are_refused(self):
        self.serve()
        token = self.token("good")
        brief = self.token("brief", "--expires", "1s")
        self.wait_until(lambda: self.ask("/api/v1/self", token=brief).status == 401, "the token expires")
        for wrong in (token[:-1], token + "x", token.swapcase(), "x", "0" * 43):
            self.assertProblem(self.ask("/api/v1/self", token=wrong), 401, "token")
        self.assertProblem(self.ask("/api/v1/self", Authorization=f"Basic {token}"), 401, "token")
        # A wrong token is not forgiven because another credential would do.
        self.assertProblem(self.ask("/api/v1/self", unix=True, token="x" * 43), 401, "token")
        self.assertEqual(self.ask("/api/v1/self", token=token).status, 200)

    def test_a_link_logs_in_once_and_logging_out_ends_it(self):
        daemon = self.serve()
        link = self.link()
        self.assertTrue(link.startswith(f"http://localhost:{self.port}/login?code="))
        path = link[link.index("/login"):]
        self.assertEqual(self.ask(path, method="HEAD").status, 200)  # a look does not use it up
        answer = self.ask(path)
        self.assertEqual((answer.status, answer.headers["Location"]), (303, "/"))
        cookie, *attributes = [word.strip() for word in answer.headers["Set-Cookie"].split(";")]
        self.assertEqual(set(attributes), {"Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"})
        self.assertProblem(self.ask(path), 401, "code")
        # Who opens it again in a browser gets the page, which knows whether he is in.
        again = self.ask(path, Accept="text/html,*/*;q=0.8")
        self.assertEqual((again.status, again.headers["Location"]), (303, "/?link=used"))
        self.assertNotIn("Set-Cookie", again.headers)
        session = self.ask("/api/v1/session", cookie=cookie)
        self.assertEqual((session.status, session.json()["role"]), (200, "control"))
        origin = f"http://localhost:{self.port}"
        self.assertEqual(self.ask("/api/v1/logout", "POST", cookie=cookie, Origin=origin).status, 200)
        self.assertProblem(self.ask("/api/v1/session", cookie=cookie), 401, "login")  # replayed
        audit = [json.loads(line) for line in (self.state / "audit.jsonl").read_text().splitlines()]
        self.assertEqual([line["what"] for line in audit], ["log in", "log out"])
        self.assertEqual({line["from"] for line in audit}, {"127.0.0.1"})
        secrets = (link.split("=")[1], cookie.split("=")[1])
        for secret in secrets:
            for text in ("\n".join(daemon.err.lines), (self.state / "sessions").read_text(),
                         (self.state / "audit.jsonl").read_text()):
                self.assertNotIn(secret, text)

    def test_a_page_may_log_in_by_a_code_too(self):
        self.serve()
        origin = f"http://localhost:{self.port}"
        code = self.link("--role", "read").split("=")[1]
        body = json.dumps({"code": code})
        self.assertProblem(self.ask("/api/v1/login", "POST", body=body), 403, "origin-missing")
        answer = self.ask("/api/v1/login", "POST", body=body, Origin=origin)
        self.assertEqual((answer.status, answer.json()["role"]), (200, "read"))
        self.assertProblem(self.ask("/api/v1/login", "POST", body=body, Origin=origin), 401, "code")
        for bad in ("", "{}", '{"code":1}', '{"code":"x","more":1}', "[", '{"code":"x"} x'):
            self.assertProblem(self.ask("/api/v1/login", "POST", body=bad, Origin=origin), 400, "bad-body")

    def test_a_session_outlives_a_restart(self):
        daemon = self.serve()
        cookie = self.log_in()
        name = cookie.split("=")[0]
        self.assertEqual(self.ask("/api/v1/session", cookie=cookie).status, 200)
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.serve()
        # The port, and so the cookie's name, is another one here.
        cookie = cookie.replace(name, f"memoir-{self.port}")
        self.assertEqual(self.ask("/api/v1/session", cookie=cookie).status, 200)

    def test_what_only_looks_cannot_act(self):
        self.serve()
        reader, actor = self.token("reader", "--user", "0"), self.token("actor", "--user", "0", "--role", "control")
        # An observer of this very process would outlive memoird, and keep the pipe open that we read it by.
        sleeper = subprocess.Popen(["sleep", "1234"])
        self.addCleanup(lambda: (sleeper.kill(), sleeper.wait()))
        path, body = f"/api/v1/processes/{sleeper.pid}/tracking", '{"on":true}'
        self.assertProblem(self.ask(path, "POST", token=reader, body=body), 403, "role")
        answer = self.ask(path, "POST", token=actor, body=body)
        self.assertNotIn(answer.status, (401, 403), answer.body)
        audit = [json.loads(line) for line in (self.state / "audit.jsonl").read_text().splitlines()]
        self.assertEqual([(line["who"], line["by"], line["status"]) for line in audit],
                         [("actor", "token", answer.status)])
        cookie = self.log_in("--role", "read")
        answer = self.ask(path, "POST", cookie=cookie, body=body, Origin=f"http://localhost:{self.port}")
        self.assertProblem(answer, 403, "role")

    def test_the_command_line_says_what_is_wrong(self):
        self.serve()
        self.token("taken")
        for words, text in ((("add", "taken"), "already"), (("add", "a b"), "invalid token name"),
                            (("add", "x", "--user", "no-such-user"), "no user"), (("add",), "needs a NAME"),
                            (("list", "x"), "takes no NAME"), (("drop", "x"), "none of"),
                            (("revoke", "nobody"), "no token")):
            made = self.memoir("token", *words, "--state", self.state)
            self.assertNotEqual(made.returncode, 0)
            self.assertIn(text, made.stderr)
        made = self.memoir("open", "--print", "--socket", self.folder / "none.sock")
        self.assertEqual(made.returncode, 1)
        self.assertIn("no memoird answers", made.stderr)

    def test_a_daemon_without_http_says_so(self):
        self.daemon("--socket", self.native, "--http", "none", "--http-socket", "none")
        made = self.memoir("open", "--print", "--socket", self.native)
        self.assertEqual(made.returncode, 1)
        self.assertIn("serves no dashboard", made.stderr)
        self.assertFalse(self.unix.exists())

    @unittest.skipUnless(ROOT, "needs root to be two users")
    def test_a_user_sees_only_his_own_commands(self):
        self.serve("--socket-group", "all", "--probe-share", "500")
        sleeper = subprocess.Popen(["sleep", "1234"])
        self.addCleanup(lambda: (sleeper.kill(), sleeper.wait()))
        other = subprocess.Popen([*as_user(NOBODY), "sleep", "4321"])
        self.addCleanup(lambda: (other.kill(), other.wait()))
        query = f"/api/v1/query?table=host&show=pid,command&where=pid={sleeper.pid}%20or%20pid={other.pid}"

        def commands(**options):
            answer = self.ask(query, **options)
            self.assertEqual(answer.status, 200, answer.body)
            return {row["pid"]: row.get("command") for row in answer.json()["rows"]}

        # Commands come by and by, within a budget of time.
        self.wait_until(lambda: {str(c).strip() for c in commands(unix=True).values()} ==
                        {"sleep 1234", "sleep 4321"}, "root sees both commands")
        for token, seen in ((self.token("his", "--user", str(NOBODY)), {other.pid}),
                            (self.token("nobodys"), set()), (self.token("all", "--user", "0"),
                                                             {sleeper.pid, other.pid})):
            rows = commands(token=token)
            self.assertEqual({pid for pid, command in rows.items() if command}, seen)
        cookie = self.log_in(prefix=as_user(NOBODY))
        self.assertEqual({pid for pid, command in commands(cookie=cookie).items() if command}, {other.pid})
        self.assertEqual(self.ask("/api/v1/session", cookie=cookie).json()["uid"], NOBODY)


class Answers(HttpTest):
    def test_head_304_and_gzip_are_the_same_answer(self):
        self.serve()
        path = "/api/v1/openapi.json"  # which does not change from one moment to the next
        plain = self.ask(path)
        packed = self.ask(path, Accept_Encoding="br, gzip")
        head = self.ask(path, "HEAD")
        self.assertEqual(packed.headers["Content-Encoding"], "gzip")
        self.assertLess(len(packed.raw), len(plain.raw))
        self.assertEqual(packed.body, plain.body)
        self.assertEqual((head.status, head.body), (200, b""))
        for name in ("Content-Length", "Content-Type", "ETag"):
            self.assertEqual(head.headers[name], plain.headers[name])
        self.assertNotEqual(packed.headers["ETag"], plain.headers["ETag"])
        for tag in (plain.headers["ETag"], packed.headers["ETag"], f'"x", W/{plain.headers["ETag"]}', "*"):
            answer = self.ask(path, If_None_Match=tag)
            self.assertEqual((answer.status, answer.body), (304, b""))
        self.assertEqual(self.ask(path, If_None_Match='"x"').status, 200)
        page = self.ask("/", Accept_Encoding="gzip")
        self.assertEqual(page.body, self.ask("/").body)
        self.assertEqual(self.ask("/", If_None_Match=page.headers["ETag"]).status, 304)

    def test_every_answer_keeps_browsers_safe(self):
        self.serve()
        for path in ("/", "/api/v1/self", "/nothing.js", "/api/v1/nothing", "/api/v1/openapi.json"):
            headers = self.ask(path).headers
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
            self.assertNotIn("unsafe", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertIn("no-", headers["Cache-Control"])
            self.assertIsNone(headers["Access-Control-Allow-Origin"])

    def test_what_is_wrong_is_told_as_a_problem(self):
        self.serve()
        token = self.token()
        self.assertProblem(self.ask("/api/v1/nothing", token=token), 404, "not-found")
        for path in ("/x.js", "/metrics", "/processes", "/api", "/api/v2/self", "/index"):  # views are fragments of "/"
            self.assertProblem(self.ask(path), 404, "not-found")
        answer = self.ask("/api/v1/self", "DELETE", token=token)
        self.assertProblem(answer, 405, "method")
        self.assertEqual(answer.headers["Allow"], "GET, HEAD")
        self.assertProblem(self.ask("/", "PUT"), 405, "method")
        self.assertProblem(self.ask("/api/v1/query?limit=x", token=token), 400, "bad-argument")
        self.assertProblem(self.ask("/api/v1/query?wher=x", token=token), 400, "bad-argument")
        self.assertProblem(self.ask("/api/v1/processes/x", token=token), 400, "bad-argument")
        answer = self.ask("/api/v1/query?show=rsss", token=token)
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (400, "application/problem+json"))

    def test_the_description_has_all_that_is_answered(self):
        self.serve()
        description = self.ask("/api/v1/openapi.json").json()
        self.assertEqual(description["openapi"], "3.1.0")
        names = [operation["operationId"] for item in description["paths"].values() for operation in item.values()]
        self.assertEqual(len(names), len(set(names)))
        schemas = description["components"]["schemas"]
        for reference in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(description)):
            self.assertIn(reference, schemas)
        self.assertEqual([server["url"] for server in description["servers"]], ["/"])
        for reference in re.findall(r'"#/components/responses/([^"]+)"', json.dumps(description)):
            self.assertIn(reference, description["components"]["responses"])
        for path, item in description["paths"].items():
            for operation in item.values():
                answers = operation["responses"]
                self.assertEqual("401" in answers, operation["x-role"] != "none")
                self.assertEqual("400" in answers, bool(operation.get("parameters") or operation.get("requestBody")))
                if "{" in path:
                    self.assertIn("404", answers)
        self.assertIn("404", description["paths"]["/api/v1/history"]["get"]["responses"])
        for path in ("/api/v1/query", "/api/v1/processes/{pid}", "/api/v1/stream", "/api/v1/login", "/login"):
            self.assertIn(path, description["paths"])

    def test_requests_of_one_connection_are_answered_in_order(self):
        self.serve()
        token = self.token()
        sock = self.raw("".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
                                for path in ("/api/v1/self", "/api/v1/nothing", "/api/v1/tables")))
        data = b""
        while data.count(b"HTTP/1.1 ") < 3:
            piece = sock.recv(65536)
            self.assertTrue(piece)
            data += piece
        self.assertEqual(re.findall(rb"HTTP/1\.1 (\d+)", data), [b"200", b"404", b"200"])


class Streams(HttpTest):
    def stream(self, token, **headers):
        heads = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return self.raw(f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                        f"{heads}\r\n")

    def events(self, sock, wanted):
        """Bytes of the stream until `wanted` came."""
        data = b""
        while wanted not in data:
            piece = sock.recv(65536)
            self.assertTrue(piece, f"the stream ended before {wanted}: {data}")
            data += piece
        return data

    def test_a_stream_says_hello_and_ticks(self):
        self.serve()
        sock = self.stream(self.token())
        data = self.events(sock, b"event: tick")
        self.assertIn(b"text/event-stream", data)
        self.assertLess(data.index(b"event: hello"), data.index(b"event: tick"))

    def test_a_thousand_streams_tick_and_end_with_the_daemon(self):
        daemon = self.serve("--http-connections-max", "1600")
        token, n = self.token("all", "--user", "0"), 1000
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2 * n:
            self.skipTest(f"only {hard} descriptors here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        socks = [self.stream(token) for _ in range(n)]
        for sock in socks:
            self.events(sock, b"event: tick")
        figures = self.ask("/api/v1/self", token=token).json()
        self.assertEqual(figures["http"]["streams"], n)
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        for sock in socks:  # all of them end, by the last chunk or by a reset
            try:
                while sock.recv(65536):
                    pass
            except ConnectionResetError:
                pass

    def test_one_viewer_has_only_so_many_streams(self):
        self.serve()
        token = self.token("few", "--user", str(NOBODY))
        socks = [self.stream(token) for _ in range(64)]
        for sock in socks:
            self.events(sock, b"event: hello")
        answer = self.ask("/api/v1/stream", token=token)
        self.assertProblem(answer, 429, "streams")
        self.assertTrue(int(answer.headers["Retry-After"]) > 0)
        socks[0].close()
        sock = None

        def again():
            nonlocal sock
            sock = self.stream(token)
            return b" 200 " in sock.recv(65536)

        self.wait_until(again, "a place is free again")


class Listening(HttpTest):
    def test_beyond_this_machine_takes_tls_or_explicit_words(self):
        refused = self.daemon("--http", "0.0.0.0:0", ready=False)
        self.assertNotEqual(refused.wait(), 0)
        self.assertIn("http-tls-cert", "\n".join(refused.err.lines))
        self.daemon("--http", "0.0.0.0:0", "--http-plain").err.wait("without TLS")

    def test_an_address_that_is_taken_is_an_error(self):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen()
            refused = self.daemon("--http", f"127.0.0.1:{sock.getsockname()[1]}", ready=False)
            self.assertNotEqual(refused.wait(), 0)
        for words in (("--http", "localhost:1"), ("--http", "127.0.0.1"), ("--http-tls-cert", "/none"),
                      ("--http-tls-cert", "/none", "--http-tls-key", "/none")):
            flags = words if words[0] == "--http" else ("--http", "127.0.0.1:0", *words)
            refused = self.daemon(*flags, ready=False)
            self.assertNotEqual(refused.wait(), 0, words)

    def test_other_addresses_and_names_work_where_they_are_ours(self):
        self.serve("--http-hosts", "box.example other.example")
        for host, status in (("box.example", 200), (f"box.example:{self.port}", 200), ("127.0.0.1", 200),
                             ("[::1]:1", 200), ("a.localhost", 200), ("evil.example", 421), ("10.0.0.1", 421),
                             ("box.example.evil", 421), ("", 400), ("a b", 400)):
            sock = self.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
            status_line = sock.recv(65536).split(b"\r\n")[0]
            self.assertIn(str(status).encode(), status_line, host)

    def test_tls_serves_the_same(self):
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        try:
            made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                   "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                                   "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
                                  capture_output=True, check=False)
        except FileNotFoundError:
            self.skipTest("no openssl here")
        self.assertEqual(made.returncode, 0, made.stderr)
        key.chmod(0o644)
        refused = self.daemon("--http", "127.0.0.1:0", "--http-tls-cert", certificate, "--http-tls-key", key,
                              ready=False)
        self.assertNotEqual(refused.wait(), 0)
        key.chmod(0o600)
        self.serve("--http-tls-cert", certificate, "--http-tls-key", key)
        link = self.link()
        self.assertTrue(link.startswith("https://"))
        context = ssl.create_default_context(cafile=str(certificate))

        def ask(path, heads=""):
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as plain, \
                    context.wrap_socket(plain, server_hostname="localhost") as sock:
                self.assertIn(sock.version(), ("TLSv1.2", "TLSv1.3"))
                sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{self.port}\r\n{heads}"
                             "Connection: close\r\n\r\n".encode())
                data = b""
                while piece := sock.recv(65536):
                    data += piece
                return data.decode("latin-1")

        answer = ask(link[link.index("/login"):])
        self.assertIn(" 303 ", answer.split("\r\n")[0])
        self.assertIn("; Secure", answer)
        cookie = re.search(r"Set-Cookie: ([^;]+)", answer)[1]
        self.assertIn(" 200 ", ask("/api/v1/session", f"Cookie: {cookie}\r\n").split("\r\n")[0])
        self.assertIn(" 401 ", ask("/api/v1/session").split("\r\n")[0])
        self.assertIn(" 403 ", ask("/api/v1/session", f"Cookie: {cookie}\r\nOrigin: http://localhost:{self.port}\r\n"))

    def test_the_port_is_free_again_when_the_daemon_was_killed(self):
        daemon = self.serve()
        port = self.port
        token = self.token("all", "--user", "0")
        self.assertEqual(self.ask(f"/api/v1/processes/{daemon.pid}/sites", token=token).status // 100, 4)
        daemon.kill()
        daemon.wait()

        def taken():
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    sock.bind(("127.0.0.1", port))
                    return False
                except OSError:
                    return True

        self.wait_until(lambda: not taken(), "no helper holds the socket")


if __name__ == "__main__":
    unittest.main()
