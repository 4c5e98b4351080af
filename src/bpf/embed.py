#!/usr/bin/env python3
"""Bytes of a file as numbers for a C array: embed.py FILE."""

import pathlib
import sys

data = pathlib.Path(sys.argv[1]).read_bytes()
for at in range(0, len(data), 24):
    print(",".join(map(str, data[at : at + 24])) + ",")
