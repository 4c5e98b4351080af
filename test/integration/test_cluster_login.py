"""How nodes log in at a real nats-server: TLS with and without a certificate of their own, nkeys, credentials of an account, and what
they say when it fails."""

import base64
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from cluster_support import ClusterTest, free_port

OPERATOR, ACCOUNT, USER, SEED = 14 << 3, 0, 20 << 3, 18 << 3


def openssl(*words, data=None):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, input=data).stdout


def crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc.to_bytes(2, "little")


def text_of(data):
    return base64.b32encode(data + crc16(data)).rstrip(b"=").decode()


class Key:
    """A key of NATS."""

    def __init__(self, folder, prefix):
        self.pem = pathlib.Path(folder) / f"{prefix}-{time.monotonic_ns()}.pem"
        openssl("genpkey", "-algorithm", "ed25519", "-out", self.pem)
        self.public = text_of(bytes([prefix]) + openssl("pkey", "-in", self.pem, "-pubout", "-outform", "DER")[-32:])
        raw = openssl("pkey", "-in", self.pem, "-outform", "DER")[-32:]
        self.seed = text_of(bytes([SEED | prefix >> 5, (prefix & 31) << 3]) + raw)

    def token(self, subject, name, **claims):
        """A JWT that this key signs about the key `subject`."""
        def part(value):
            return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

        body = part({"typ": "JWT", "alg": "ed25519-nkey"}) + b"." + part(
            {"jti": name, "iat": int(time.time()), "iss": self.public, "name": name, "sub": subject,
             "nats": dict(claims, version=2)})
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            signature = openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.pem, "-in", file.name)
        return (body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


class LoginTest(ClusterTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="memoir-login-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def members(self, node, n=2):
        self.wait_until(lambda: len(node.states()) == n, f"{node.name} knows {n} nodes")

    def authority(self, name):
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                f"/CN={name}", "-keyout", key, "-out", certificate)
        return key, certificate

    def certificate(self, authority, name, names="IP:127.0.0.1,DNS:localhost"):
        ca_key, ca = authority
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key,
                "-out", request)
        extensions = self.file(f"{name}.ext", f"subjectAltName={names}\n")
        openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile",
                extensions, "-out", certificate)
        return key, certificate

    def tls(self, verify):
        authority = self.authority("authority")
        key, certificate = self.certificate(authority, "server")
        more = f'ca_file: "{authority[1]}", verify: true' if verify else ""
        return authority, f'tls {{ cert_file: "{certificate}", key_file: "{key}", {more} }}\n'

    def test_tls(self):
        authority, config = self.tls(False)
        nats = self.nats(config)
        url = nats.url.replace("nats://", "tls://")
        n1 = self.node("n1", url, "--cluster-tls-ca", authority[1])
        self.node("n2", url, "--cluster-tls-ca", authority[1])
        self.members(n1)
        # One that does not know the authority stays outside, says so and works on.
        _, other = self.authority("other")
        n3 = self.node("n3", url, "--cluster-tls-ca", other, ready=False)
        n3.process.err.wait("cannot join the cluster: .*(TLS|SSL|certificate)")
        self.assertTrue(n3.query(table="system", show="total")["result"]["rows"])
        self.assertRegex(n3.status()["problem"], "TLS|SSL|certificate")
        self.members(n1)

    def test_tls_with_certificates_of_nodes(self):
        authority, config = self.tls(True)
        nats = self.nats(config)
        url = nats.url.replace("nats://", "tls://")
        key, certificate = self.certificate(authority, "node")
        flags = ("--cluster-tls-ca", authority[1], "--cluster-tls-cert", certificate, "--cluster-tls-key", key)
        n1 = self.node("n1", url, *flags)
        self.node("n2", url, *flags)
        self.members(n1)
        n3 = self.node("n3", url, "--cluster-tls-ca", authority[1], ready=False)
        n3.process.err.wait("cannot join the cluster")
        self.members(n1)

    def test_the_private_server_with_tls(self):
        authority = self.authority("authority")
        key, certificate = self.certificate(authority, "server")  # for localhost and 127.0.0.1
        n1, n2 = (self.node(name, None, ready=False) for name in ("n1", "n2"))

        def run(node, *words):
            done = node.memoir("cluster", *words, "--state", node.state, "--socket", node.socket)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.split()[-1] if done.stdout else ""

        url = run(n1, "init", "--listen", f"127.0.0.1:{free_port()}", "--advertise", "localhost", "--tls-cert", certificate,
                  "--tls-key", key, "--tls-ca", authority[1])
        self.assertRegex(url, "^tls://.*@localhost:")
        n1.process.err.wait("connected to the cluster")
        run(n2, "join", url, "--tls-ca", authority[1])
        n2.process.err.wait("connected to the cluster")
        self.members(n1)

    def test_a_certificate_of_another_name_is_refused(self):
        authority = self.authority("authority")
        key, certificate = self.certificate(authority, "server", "DNS:nats.example")
        nats = self.nats(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n')
        n1 = self.node("n1", nats.url.replace("nats://", "tls://"), "--cluster-tls-ca", authority[1], ready=False)
        n1.process.err.wait("cannot join the cluster: .*(TLS|SSL|certificate)")
        self.assertTrue(n1.query(table="system", show="total")["result"]["rows"])

    def test_nkey(self):
        good, wrong = Key(self.folder, USER), Key(self.folder, USER)
        nats = self.nats(f"authorization {{ users: [ {{ nkey: {good.public} }} ] }}\n")
        seed = self.file("seed", good.seed + "\n")
        n1 = self.node("n1", nats.url, "--cluster-nkey", seed)
        self.node("n2", nats.url, "--cluster-nkey", seed)
        self.members(n1)
        n3 = self.node("n3", nats.url, "--cluster-nkey", self.file("wrong", wrong.seed + "\n"), ready=False)
        n3.process.err.wait("cannot join the cluster: the server refuses .* authorization")
        n4 = self.node("n4", nats.url, "--cluster-nkey", self.file("none", good.public + "\n"), ready=False)
        n4.process.err.wait("cannot join the cluster: .* has no line with the seed")
        self.members(n1)

    def test_a_renewed_key_is_taken_up(self):
        """The path stays, the file has another key: memoird notices that at a reload, and leaves what did not change alone."""
        good, wrong = Key(self.folder, USER), Key(self.folder, USER)
        nats = self.nats(f"authorization {{ users: [ {{ nkey: {good.public} }} ] }}\n")
        seed = self.file("seed", wrong.seed + "\n")
        n1 = self.node("n1", nats.url, "--cluster-nkey", seed, ready=False)
        n1.process.err.wait("cannot join the cluster: the server refuses .* authorization")
        seed.write_text(good.seed + "\n")
        n1.process.kill(signal.SIGHUP)
        n1.process.err.wait("connected to the cluster")
        n2 = self.node("n2", nats.url, "--cluster-nkey", seed)
        self.members(n2)
        n1.process.kill(signal.SIGHUP)
        self.assertEqual(n1.ask({"cluster": "reload"})["cluster"]["state"], "connected")
        self.assertEqual(n2.states()["n1"], "alive")  # it did not leave and come again
        self.assertEqual(sum("connected to the cluster" in line for line in n1.process.err.lines), 1)

    def test_credentials(self):
        operator, account, user = Key(self.folder, OPERATOR), Key(self.folder, ACCOUNT), Key(self.folder, USER)
        operator_token = operator.token(operator.public, "operator", type="operator")
        limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
        account_token = operator.token(account.public, "account", type="account", limits=limits)
        nats = self.nats(f"operator: {operator_token}\nresolver: MEMORY\n"
                         f"resolver_preload: {{ {account.public}: {account_token} }}\n")

        def credentials(name, signer):
            token = signer.token(user.public, name, type="user", pub={}, sub={}, subs=-1, data=-1, payload=-1)
            return self.file(name, f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
                                   f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n")

        good = credentials("good", account)
        n1 = self.node("n1", nats.url, "--cluster-creds", good)
        self.node("n2", nats.url, "--cluster-creds", good)
        self.members(n1)
        other = Key(self.folder, ACCOUNT)
        n3 = self.node("n3", nats.url, "--cluster-creds", credentials("wrong", other), ready=False)
        n3.process.err.wait("cannot join the cluster: the server refuses .* authorization")
        n4 = self.node("n4", nats.url, "--cluster-creds", self.folder / "missing", ready=False)
        n4.process.err.wait("cannot join the cluster")
        self.members(n1)


if __name__ == "__main__":
    unittest.main()
