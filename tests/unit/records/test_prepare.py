"""No kernel is compiled in the middle of a stream."""

import subprocess
import sys

SCRIPT = """
import json
import pyarrow as pa
from spatialstream.records import decode, decode_queries, decode_tables
from spatialstream.records import scan
from spatialstream.model import eight_bytes
from spatialstream.records import tokens
from spatialstream.records import values
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule

def compiled():
    kernels = {}
    for module in (scan, eight_bytes, tokens, values):
        for name, kernel in vars(module).items():
            if hasattr(kernel, "signatures") and kernel.py_func.__module__ == module.__name__:
                kernels[f"{module.__name__}.{name}"] = len(kernel.signatures)
    return kernels

decode.prepare()
before = compiled()
record = {"id": "a", "t": 5, "lon": 1.23456789012345678, "lat": 2, "text": "e\\u0301 Stra\\u00dfe extraordinary"}
odd = {"id": "\\u00e9", "t": "2018-02-07", "x": 1, "y": 2e-30, "terms": ["a", "b\\n"]}
asked = {"id": "q", "type": "CKQ", "t": 0, "at": [0, 1.5], "k": 3, "duration": "1h", "window": 7, "keywords": ["a b"]}
area = {"id": "r", "type": "STQ", "t": 0, "region": {"circle": [0, 0, 1.23456789012345678]}, "k": 3, "duration": 5}
for rule in (TermRule(), TermRule(frozenset({"a"}), 2)):
    for space in (WGS84, Space.planar(0, 0, 5, 5)):
        for records in ([], [record], [odd], [asked, area], [record, odd, 7]):
            data = "\\n".join(map(json.dumps, records)).encode()
            decode.decode_objects(data, 1, space, rule)
            decode.decode_objects(pa.py_buffer(data), 1, space, rule, {"text": "other"})
            decode_queries.decode_queries(data, 1, space, rule)
        decode.decode_csv(b'a,5,1,2,"x ""y"" z"\\n', ["id", "t", "lon", "lat", "text"], 2, space, rule)
        for kind in (pa.string(), pa.large_string()):
            text = pa.array(["x"], kind)
            table = pa.table({"id": ["a"], "t": ["2018-02-07"], "lon": [1], "lat": [2.5], "text": text})
            decode_tables.decode_object_table(table, 1, space, rule)
            decode_tables.decode_object_table(table.slice(1), 1, space, rule)
after = compiled()
assert before == after, {name: (before[name], after[name]) for name in before if before[name] != after[name]}
outer = "_mark_complex _rehash _tokenise _csv_borders _scan_csv _scan_json _strings _numbers _integers _count_items"
outer += " _fill_items _regions _points _choices _sizes _gather"
assert {name: count for name, count in after.items() if name.rpartition(".")[2] in outer.split() and count != 1} == {}
"""


def test_everything_is_compiled_by_prepare_and_once():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=200)
