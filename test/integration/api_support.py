"""A memoird that is asked over HTTP at a Unix socket, and answers held against the API's own description."""

import http.client
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

from daemon_fixture import BUILD, PATIENCE_S, as_user
from document import checked
from native_fixture import NativeTest

MEMOIR = BUILD / "src/cli/memoir"

# For another user: one request, whose answer is printed as JSON.
ASKER = """
import http.client, json, socket, sys
path, method, target, body = sys.argv[1:5]
connection = http.client.HTTPConnection("localhost", timeout=60)
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
headers = {"Content-Type": "application/json", "Origin": "http://localhost"} if body else {}
connection.request(method, "/api/v1" + target, body or None, headers)
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Invalid(AssertionError):
    pass


class Schemas:
    """As much of JSON Schema as the description uses."""

    TYPES = {
        "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
        "number": (int, float),
    }

    def __init__(self, document):
        self.document = document

    def check_type(self, value, names, at):
        for name in [names] if isinstance(names, str) else names:
            if isinstance(value, self.TYPES[name]) and (name == "boolean" or not isinstance(value, bool)):
                return
        raise Invalid(f"{at}: {value!r:.80} is not of type {names}")

    def check(self, value, schema, at="$"):
        known = {"type", "required", "properties", "additionalProperties", "items", "enum", "const", "minimum", "maximum",
                 "minItems", "maxItems", "$ref", "description", "format", "title", "minLength", "maxLength", "examples"}
        if set(schema) - known:
            raise Invalid(f"{at}: the schema has {set(schema) - known}, which is not understood here")
        if "$ref" in schema:
            target = self.document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            self.check(value, target, at)
        if "type" in schema:
            self.check_type(value, schema["type"], at)
        if "const" in schema and value != schema["const"]:
            raise Invalid(f"{at}: {value!r} is not {schema['const']!r}")
        if "enum" in schema and value not in schema["enum"]:
            raise Invalid(f"{at}: {value!r} is none of {schema['enum']}")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                raise Invalid(f"{at}: {value} is out of bounds")
        if isinstance(value, dict):
            self.check_object(value, schema, at)
        if isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                raise Invalid(f"{at}: {len(value)} items")
            for i, item in enumerate(value):
                self.check(item, schema.get("items", {}), f"{at}[{i}]")

    def check_object(self, value, schema, at):
        missing = [key for key in schema.get("required", ()) if key not in value]
        if missing:
            raise Invalid(f"{at}: {missing} are missing")
        properties = schema.get("properties", {})
        for key, member in value.items():
            if key in properties:
                self.check(member, properties[key], f"{at}.{key}")
            elif schema.get("additionalProperties") is False:
                raise Invalid(f"{at}: {key} should not be there")
            elif isinstance(schema.get("additionalProperties"), dict):
                self.check(member, schema["additionalProperties"], f"{at}.{key}")


class Stream:
    """Server-sent events, as they come."""

    def __init__(self, path, target="/api/v1/stream", headers=None):
        self.connection = UnixConnection(path)
        self.connection.request("GET", target, headers=headers or {})
        self.answer = self.connection.getresponse()
        self.events = []
        self.changed = threading.Condition()
        self.ended = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        event = {}
        try:
            for raw in self.answer:
                line = raw.decode().rstrip("\n")
                if line.startswith(":"):
                    continue
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                elif event:
                    self.put(event)
                    event = {}
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def put(self, event):
        if "data" in event:
            event["data"] = json.loads(event["data"])
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait(self, good, what):
        """The first event that is as it should be."""
        def found():
            return next((event for event in self.events if good(event)), None)

        with self.changed:
            if self.changed.wait_for(lambda: found() or self.ended, PATIENCE_S) and found():
                return found()
        raise AssertionError(f"{what} never came; there were {self.events[-3:]}")

    def close(self):
        try:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        self.thread.join(PATIENCE_S)
        self.answer.close()
        self.connection.close()


class ApiTest(NativeTest):
    def setUp(self):
        super().setUp()
        self.http = str(self.folder / "http.sock")
        self._description = None

    def api(self, *flags, **options):
        return self.native("--http", "none", "--http-socket", self.http, *flags, **options)

    def request(self, method, target, body=None, headers=None):
        connection = UnixConnection(self.http)
        try:
            data = None if body is None else json.dumps(body)
            more = {} if body is None else {"Content-Type": "application/json", "Origin": "http://localhost"}
            connection.request(method, "/api/v1" + target, data, {**more, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, target, status=200, **arguments):
        """The JSON of an answer."""
        if arguments:
            target += "?" + urllib.parse.urlencode(arguments)
        answer = self.request("GET", target)
        self.assertEqual(answer.status, status, answer.body[:500])
        body = answer.json()
        return checked(body) if "columns" in body and "table" not in body else body

    def problem(self, target, status, code, method="GET", body=None, **arguments):
        if arguments:
            target += "?" + urllib.parse.urlencode(arguments)
        answer = self.request(method, target, body)
        self.assertEqual(answer.status, status, answer.body[:500])
        self.assertEqual(answer.headers["Content-Type"], "application/problem+json")
        problem = answer.json()
        Schemas(self.description()).check(problem, {"$ref": "#/components/schemas/Problem"})
        self.assertEqual(problem["status"], status)
        self.assertTrue(problem["type"].endswith(":" + code), problem)
        return problem

    def description(self):
        if not self._description:
            self._description = self.get("/openapi.json")
        return self._description

    def valid(self, document, name):
        Schemas(self.description()).check(document, {"$ref": f"#/components/schemas/{name}"})
        return document

    def rows(self, target, **arguments):
        return self.get(target, **arguments)["rows"]

    def stream(self, target="", headers=None):
        stream = Stream(self.http, "/api/v1/stream" + target, headers)
        self.addCleanup(stream.close)
        return stream

    def as_other(self, uid, target, status=200, method="GET", body=None):
        """The same as another user, whom the socket knows by his uid."""
        done = subprocess.run([*as_user(uid), sys.executable, "-c", ASKER, self.http, method, target,
                               json.dumps(body) if body is not None else ""],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd="/")
        got, text = json.loads(done.stdout)
        self.assertEqual(got, status, text[:500])
        return json.loads(text)

    def memoir(self, *arguments):
        """What the command line says, as JSON."""
        done = subprocess.run([MEMOIR, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def eventually(self, ask, good, what):
        """What `ask` gives once it is as it should be."""
        last = {}

        def there():
            last["got"] = ask()
            return good(last["got"])

        try:
            self.wait_until(there, what)
        except AssertionError:
            raise AssertionError(f"{what}: {json.dumps(last.get('got'))[:2000]}") from None
        return last["got"]


__all__ = ["ApiTest", "MEMOIR", "Schemas", "Stream", "pathlib", "time"]
