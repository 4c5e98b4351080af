#!/usr/bin/env python3
"""Turn files of the dashboard into the C table of src/http/static.h.

Usage: embed.py OUT.c ROOT FILE...      FILE is served at its path below ROOT

Bytes are compressed once, here. A file whose name carries a hash of its content ("app-3f2a9c1d.js") may be
kept by browsers for good.
"""

import gzip
import hashlib
import pathlib
import re
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
HASHED = re.compile(r"-[0-9A-Za-z]{8,}\.[a-z0-9]+$")


def array(number, data):
    rows = (", ".join(str(byte) for byte in data[i : i + 24]) for i in range(0, len(data), 24))
    return f"static const unsigned char file_{number}[] = {{\n" + ",\n".join(rows) + "\n};\n"


def main():
    out, root, *files = sys.argv[1:]
    arrays, rows = [], []
    for number, name in enumerate(sorted(files)):
        file = pathlib.Path(name).resolve()
        data = file.read_bytes()
        packed = gzip.compress(data, 9, mtime=0)
        etag = hashlib.sha256(data).hexdigest()[:16]
        path = "/" + file.relative_to(pathlib.Path(root).resolve()).as_posix()
        path = "/" if path == "/index.html" else path
        immutable = "true" if HASHED.search(path) else "false"
        arrays.append(array(number, packed))
        rows.append(f'    {{"{path}", "{TYPES[file.suffix]}", file_{number}, {len(packed)}, "{etag}", {immutable}}},')
    text = '/* Made by src/http/embed.py. */\n#include "http/static.h"\n\n' + "\n".join(arrays)
    text += "\nconst struct http_static web_files[] = {\n" + "\n".join(rows) + "\n    {0},\n};\n"
    pathlib.Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
