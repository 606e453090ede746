"""Bundling of ES modules into one script, since a page opened from a file cannot load modules.

Only imports and exports are rewritten: each module becomes a function that returns its exports, from which importing
modules read. So a module's private names stay private.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["inlined"]

_IMPORT = re.compile(r'^import \{ (\w+(?:, \w+)*) \} from "(\.[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_OTHERS = re.compile(r"^(?:import|export)\b.*|.*</script.*", re.MULTILINE | re.IGNORECASE)


def inlined(entry: Path) -> str:
    """Bundle a module with all its imports, each before the modules that import it.

    Args:
        entry: the module that begins.

    Raises:
        ValueError: a module imports or exports in another way than this project does, in a circle, or ends the script.
    """
    names = dict[Path, str | None]()  # of modules, None: what it imports is being read
    parts = list[str]()

    def take(path: Path) -> str:
        if path in names:
            if (known := names[path]) is None:
                raise ValueError(f"{path.name} imports itself")
            return known
        names[path] = None
        text = path.read_text("utf-8")
        text = _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {take((path.parent / found[2]).resolve())};", text)
        exported = _EXPORT.findall(text)
        text = _EXPORT.sub("", text)
        if other := _OTHERS.search(text):
            raise ValueError(f"{path.name}: cannot be put into a page: {other[0]}")
        name = f"module{len(parts)}_{re.sub('[^a-z]', '_', path.stem)}"
        given = f"return {{ {', '.join(exported)} }};\n" if exported else ""
        parts.append(f"const {name} = (() => {{\n{text}{given}}})();\n")
        names[path] = name
        return name

    take(entry.resolve())
    return "\n".join(parts)
