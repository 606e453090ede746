"""Would msgspec do for the JSON kernels of :mod:`spatialstream.records.scan`? Decoding by both, measured in turn.

``python -m tests.benchmarks.json_by_msgspec``, after ``pip install msgspec``, which nothing else here needs.

Both make the same batches, counts of unknown fields and dead letters of the same bytes, which is checked, and share the
tokenizer and the exact parser. The way with msgspec decodes blocks in one call where each line is one record, and line
by line where one is malformed. Names of unknown fields become optional fields of its type when they are met first, so
that they can be counted.

Figures are CPU times of one thread. A live object costs 11.3 µs of CPU in all processes together where decoding costs
0.47 µs (``docs/performance.md``): the percentages are what the difference would add to that. Last comes the longest
time that a thread beside the decoding of 16 MiB had to wait for its turn, in the median of several tries: the kernels
release the interpreter's lock, and msgspec holds it, so here it decodes some 10,000 lines in a call.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import numpy_view, string_view
from spatialstream.model.objects import ObjectBatch
from spatialstream.records import decode, reference, values
from spatialstream.records.reference import object_fields
from spatialstream.records.rejected import REJECTED
from spatialstream.records.scan import STRING, Cells
from spatialstream.records.tokens import tokenise_slices
from tests.benchmarks.bench_decode import object_lines, spoil
from tests.benchmarks.workload import SPACE

_RUNS, _TRIES, _PIECE = 25, 9, 10_000
_DECODING, _LIVE = 0.47, 11.3
_FIELDS = (
    ("id", str | int | None, None),
    ("t", int | str | None, None),
    ("x", float | None, None),
    ("y", float | None, None),
    ("text", str | None, None),
    ("terms", list[str] | None, None),
)
_ERRORS = (msgspec.DecodeError, RecursionError, ValueError)


class Msgspec:
    """Objects of JSON Lines by msgspec; knows the unknown fields of the blocks before."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._learn(())

    def _learn(self, names: object) -> None:
        self.unknown += [name for name in names if name not in self.unknown][: 30 - len(self.unknown)]
        more = [(f"f{i}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for i in range(len(self.unknown))]
        renamed = {f"f{i}": name for i, name in enumerate(self.unknown)}
        kind = msgspec.defstruct("Record", [*_FIELDS, *more], rename=renamed, gc=False, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(kind)

    def _records(self, raw: bytes, lines: list[bytes]) -> list:
        """A record a line, None where it is none that is certainly right."""
        try:
            # a line that begins and ends like an object holds whole records; as many records as lines: one each
            if all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
                if len(lines) <= _PIECE:
                    pieces = [raw]
                else:
                    pieces = [b"\n".join(lines[at : at + _PIECE]) for at in range(0, len(lines), _PIECE)]
                records = [each for piece in pieces for each in self._decoder.decode_lines(piece)]
                if len(records) == len(lines):
                    return records
        except _ERRORS:
            pass
        return [self._record(line) for line in lines]

    def _record(self, line: bytes) -> object:
        try:
            return self._decoder.decode(line)
        except msgspec.ValidationError:
            names = json.loads(line).keys() - set(object_fields(SPACE))
            if names <= set(self.unknown):
                return None
            self._learn(sorted(names))
            return self._record(line)
        except _ERRORS:
            return None

    def decode(self, data: bytes) -> reference.Decoded[ObjectBatch]:
        """As :func:`~spatialstream.records.decode.decode_objects` of a block without blank lines."""
        lines = data.split(b"\n")[:-1]
        records = self._records(data, lines)
        good = np.array([each is not None for each in records], np.bool_)
        fine = [each for each in records if each is not None]
        sound = np.ones(len(fine), np.bool_)
        batch = _batch(fine, sound)
        good[good] = sound
        names = [(name, f"f{i}") for i, name in enumerate(self.unknown)]
        counts = {name: sum(getattr(each, field) is not msgspec.UNSET for each in fine) for name, field in names}
        unknown = Counter({name: count for name, count in counts.items() if count})
        kept, odd = np.flatnonzero(good), np.flatnonzero(~good)
        rest = decode.decode_objects(b"\n".join(lines[row] for row in odd), 1, SPACE)
        lost = rest.rejected.set_column(0, REJECTED.field(0), pa.array(odd[numpy_view(rest.rejected["line"]) - 1] + 1))
        kept = np.concatenate([kept, odd[rest.line - 1]])
        order = np.argsort(kept)
        batch = ObjectBatch.concat([batch, rest.batch]).take(order) if len(rest.batch) else batch
        return reference.Decoded(batch, kept[order] + 1, lost, unknown + Counter(rest.unknown))


def _batch(records: list, good: np.ndarray) -> ObjectBatch:
    """The good ones among records; marks the others."""
    x, y = (np.array([getattr(each, axis) for each in records], np.float64) for axis in "xy")
    good &= (x >= SPACE.west) & (x <= SPACE.east) & (y >= SPACE.south) & (y <= SPACE.north)
    ids = [each.id if type(each.id) is str else str(each.id) for each in records]
    text, terms = [each.text for each in records], [each.terms for each in records]
    good &= np.array([(a is None) != (b is None) for a, b in zip(text, terms, strict=True)], np.bool_)
    lists = [each.terms or () for each in records] if any(terms) else []
    texts = pa.array(text if not lists else [s for a, b in zip(text, lists, strict=True) for s in ([a] if a else b)])
    offsets, data = string_view(pa.array(texts, pa.string()))
    bounds, groups = offsets.astype(np.int64), np.arange(len(records) + 1)
    if lists:
        groups = np.cumsum([0, *(1 if a else len(b) for a, b in zip(text, lists, strict=True))])
    coded, _ = tokenise_slices(data, bounds[:-1].copy(), bounds[1:].copy(), groups)
    batch = ObjectBatch(pa.array(ids, pa.string()), _times([each.t for each in records], good), x, y, coded)
    return batch if good.all() else batch.take(np.flatnonzero(good))


def _times(t: list, good: np.ndarray) -> np.ndarray:
    try:
        return numpy_view(pa.array(t, pa.int64()))
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        offsets, data = string_view(pa.array([str(each) for each in t]))
        bounds, kind = offsets.astype(np.int64), np.full(len(t), STRING, np.uint8)
        return values.read_times(Cells(np.append(data, np.zeros(8, np.uint8)), good, kind, bounds[:-1], bounds[1:]))


def same(a: reference.Decoded[ObjectBatch], b: reference.Decoded[ObjectBatch]) -> bool:
    """Whether two blocks are decoded to the same."""
    batches = a.batch.to_arrow().to_pydict() == b.batch.to_arrow().to_pydict()
    return batches and a.line.tolist() == b.line.tolist() and a.rejected == b.rejected and a.unknown == b.unknown


def longest_wait(work: Callable[[], object]) -> float:
    """The longest time, in ms, for which a thread that wants to run each millisecond did not while ``work`` did."""
    done, longest = threading.Event(), 0.0
    worker = threading.Thread(target=lambda: (work(), done.set()))
    worker.start()
    before = time.perf_counter()
    while not done.wait(0.001):
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    worker.join()
    return 1e3 * max(longest, time.perf_counter() - before)


def ways(data: bytes) -> list[Callable[[], reference.Decoded[ObjectBatch]]]:
    """Decoding by the scanner and by msgspec, which have been seen to make the same of the data."""
    other = Msgspec()
    both = [lambda: decode.decode_objects(data, 1, SPACE), lambda: other.decode(data)]
    scanned, by_msgspec = (way() for way in both)
    assert same(scanned, by_msgspec)
    return both


def best_of(*both: Callable[[], object]) -> list[float]:
    """CPU seconds of the fastest of several runs of each, in turn."""
    taken = []
    for _ in range(_RUNS):
        for way in both:
            start = time.thread_time()
            way()
            taken.append(time.thread_time() - start)
    return [min(taken[i :: len(both)]) for i in range(len(both))]


def run(n: int = 20_000) -> None:
    """Print all figures, for n records."""
    decode.prepare()
    plain, _ = object_lines(n)
    rows = [json.loads(line) for line in plain.splitlines()]
    more = {"user": {"name": "abc", "followers": 12}, "lang": "en", "retweets": 3}

    def lines(change: Callable[[dict], dict]) -> bytes:
        return b"".join(json.dumps(change(row)).encode() + b"\n" for row in rows)

    kinds = {
        "known fields alone": plain,
        "three other fields": lines(lambda row: row | more),
        "times in ISO 8601": lines(lambda row: row | {"t": "2018-02-07T01:26:13.840Z"}),
        "1 % malformed": spoil(plain, 100)[:-1] + b"\n",
    }
    pairs = {name: ways(data) for name, data in kinds.items()}  # all first: what one frees, the next need not map again
    for both in pairs.values():
        best_of(*both)
    scanned = best_of(*pairs["known fields alone"])[0]
    for name, both in pairs.items():
        by_scanner, by_msgspec = best_of(*both)
        added = (by_msgspec - by_scanner) / scanned * _DECODING / _LIVE
        print(
            f"{name:<22}{1e6 * by_scanner / n:6.2f} µs by the scanner, {1e6 * by_msgspec / n:6.2f} µs by msgspec: "
            f"{by_msgspec / by_scanner:4.2f} times; {100 * added:4.1f} % more CPU of a live object",
            flush=True,
        )
    both = ways(plain * ((16 << 20) // len(plain)))
    waits = np.median([[longest_wait(way) for way in both] for _ in range(_TRIES)], axis=0)
    print(f"longest wait of a thread beside it: {waits[0]:.0f} ms, by msgspec {waits[1]:.0f} ms")


if __name__ == "__main__":
    run()
