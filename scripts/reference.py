"""Write the references of every field of the custom resources from their CustomResourceDefinitions.

Usage: python scripts/reference.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGES = {
    "charts/spatialstream/files/crd.yaml": "docs/spatialstream-resource.md",
    "charts/spatialstream/files/query-crd.yaml": "docs/spatialquery-resource.md",
    "charts/spatialstream/files/area-crd.yaml": "docs/spatialarea-resource.md",
}

Schema = dict[str, Any]

HEAD = """# The resource {kind}

<!-- Generated from {source} by scripts/reference.py; edit that file. -->

Every field of `{kind}` (`{group}/{version}`; short name `{short}`). The API server checks a spec against this
schema and its rules, and fills in the defaults; the operator refuses [unknown fields](operator.md#unknown-fields).
{durations}

The smallest one:

```yaml
apiVersion: {group}/{version}
kind: {kind}
metadata:
  name: {name}
spec:
{spec}
```
"""

SMALLEST = {
    "SpatialStream": {
        "name": "quakes",
        "durations": "Durations are an integer and a unit: `500ms`, `30s`, `5m`,\n`2h`, `7d`.",
        "spec": """  kafka:
    bootstrapServers: kafka:9092
  zookeeper:
    servers: zookeeper:2181
  checkpoint:
    claimName: checkpoints""",
    },
    "SpatialQuery": {
        "name": "floods",
        "durations": "[Continuous queries as resources](queries.md) explains how it is\nprocessed.",
        "spec": """  stream: quakes
  type: CRQ
  region:
    box: [-180, -90, 180, 90]""",
    },
    "SpatialArea": {
        "name": "mitte",
        "durations": "[Areas as resources](areas.md) explains how it is\nprocessed.",
        "spec": """  stream: quakes
  geometry:
    type: Polygon
    coordinates: [[[13.3, 52.5], [13.4, 52.5], [13.4, 52.6], [13.3, 52.5]]]""",
    },
}


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Path, schema and requiredness of all nested fields; fields of list items have ``[]`` in their path."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field, name in required
        yield from fields(field, here)
        if isinstance(field.get("items"), dict):
            yield from fields(field["items"], f"{here}[]")


def kind_of(schema: Schema) -> str:
    """The type of a field, for people."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "duration" if "pattern" in schema else "quantity"
    if "properties" not in schema and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {kind_of(schema['additionalProperties'])}s"
    if schema.get("type") == "array":
        item = kind_of(schema["items"])
        return f"list of {item.replace('list', 'lists', 1) if item.startswith('list') else f'{item}s'}"
    bounds = (schema.get("minimum"), schema.get("maximum"))
    if schema.get("type") == "integer" and None not in bounds:
        return f"integer, {bounds[0]} to {bounds[1]}"
    return "time" if schema.get("format") == "date-time" else str(schema.get("type", "any"))


def default_of(schema: Schema, required: bool) -> str:
    """Default of a field; objects have the defaults of their fields."""
    if required:
        return "required"
    value = schema.get("default")
    if value is None or value == {}:
        return ""
    plain = isinstance(value, str) and value
    return f"`{value if plain else json.dumps(value)}`"


def cell(text: str) -> str:
    """Text of a table cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def table(schema: Schema, path: str, *, defaults: bool = True) -> Iterator[str]:
    """A table of the fields of an object."""
    columns = ["field", "type", *(["default"] if defaults else []), "meaning"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for name, field, required in fields(schema, path):
        cells = [f"`{name}`", kind_of(field), *([default_of(field, required)] if defaults else [])]
        yield f"| {' | '.join([*cells, cell(field.get('description', ''))])} |"


def rules(schema: Schema, path: str) -> Iterator[str]:
    """Messages of the validation rules of a schema, with the field of each."""
    seen = set()
    for name, field, _ in [(path, schema, False), *fields(schema, path)]:
        for rule in field.get("x-kubernetes-validations", []):
            about = f"{name}{rule.get('fieldPath', '')}"
            line = f"- `{about}`: {rule['message']}"
            if line not in seen:
                seen.add(line)
                yield line


def sections(spec: Schema) -> Iterator[str]:
    """A section for each object of the spec, and one for the other fields."""
    parts = spec["properties"]
    plain = {name: field for name, field in parts.items() if not field.get("properties")}
    yield from ("## spec", "", "Fields of `spec` without nested fields; the others follow.", "")
    yield from table({"properties": plain, "required": spec.get("required", [])}, "")
    for name, field in parts.items():
        if name not in plain:
            needed = " Required." if name in spec.get("required", []) else ""
            yield from ("", f"## spec.{name}", "", cell(field["description"]) + needed, "")
            yield from table(field, name)


def columns(version: Schema) -> Iterator[str]:
    """The columns of ``kubectl get``."""
    yield from ("| column | shown | meaning |", "|---|---|---|")
    for column in version["additionalPrinterColumns"]:
        shown = "with `-o wide`" if column.get("priority") else "always"
        yield f"| {column['name']} | {shown} | {cell(column['description'])} |"


def render(definition: Schema, source: str) -> str:
    """Render the page of a resource."""
    version, names = definition["spec"]["versions"][0], definition["spec"]["names"]
    schema = version["schema"]["openAPIV3Schema"]
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    head = HEAD.format(
        source=source,
        kind=names["kind"],
        group=definition["spec"]["group"],
        version=version["name"],
        short=names["shortNames"][0],
        **SMALLEST[names["kind"]],
    )
    lines = [
        *sections(spec),
        *("", "## Rules", "", "What the API server rejects, and its message:", ""),
        *rules({key: value for key, value in schema.items() if key != "properties"}, "metadata.name"),
        *rules(spec, "spec"),
        *("", "## status", "", cell(status["description"]), ""),
        *table(status, "", defaults=False),
        *("", "## kubectl get", ""),
        *columns(version),
    ]
    return head + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages."""
    for source, target in PAGES.items():
        definition = yaml.safe_load((ROOT / source).read_text("utf-8"))
        (ROOT / target).write_text(render(definition, source), "utf-8")


if __name__ == "__main__":
    main()
