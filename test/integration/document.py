"""Documents of memoir that are no tables: "columns" has the kind and unit of each figure, and no name has a unit of its own."""

import re

MAPS = {"kinds", "losses"}  # their members have names of their own, and the unit of the map
UNITS = re.compile(r"_(bytes|ns|us|ms|s|seconds|percent|permille)$")


def figures(value, name=None):
    """Names of all numbers, and of texts that are times."""
    if isinstance(value, dict):
        for key, member in value.items():
            if key != "columns" and not (isinstance(member, dict) and "schema" in member):
                yield from figures(member, name if name in MAPS else key)
    elif isinstance(value, list):
        for item in value:
            yield from figures(item, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name


def checked(document):
    """The document, if it says what it is, when it was made, and in which unit its figures are."""
    assert re.fullmatch(r"memoir\.[a-z.-]+/\d+", document["schema"]), document["schema"]
    assert re.match(r"\d{4}-\d\d-\d\dT", document["time"]), document["time"]
    told = {column["name"]: column for column in document["columns"]}
    missing = set(figures(document)) - set(told)
    assert not missing, f"{document['schema']}: no unit of {sorted(missing)}"
    texts = {name for name in figures(document) if told[name]["kind"] in ("text", "time")}
    assert not texts, f"{document['schema']}: numbers where columns promise texts: {sorted(texts)}"
    assert told["time"]["unit"] == "ISO 8601", told["time"]
    assert not [name for name in told if UNITS.search(name)], sorted(told)
    return document
