"""A segment: an immutable block of objects with an index for searches without a scan.

Objects are columns in Z-order, so that each quadtree node is a range of positions (:mod:`.zorder`). Terms are encoded
in the segment's own vocabulary (:mod:`.wordtable`), and each term has postings: the ascending positions of its objects.
Keywords of properties are terms, too, by which searches select (:mod:`spatialstream.model.keyword_terms`), unless most
objects have one of their own (:mod:`.keywords`): they have postings only, and are in no set and no table, so that what
counts or ranks words does not see them.
The number of objects of a node with a term is found by two binary searches: an IR-tree (Cong et al. 2009) of which only
the leaves are stored. Built on this: range-keyword search (:mod:`.zranges`), nearest neighbours (:mod:`.nearest`), and
term counts from tables of large nodes (:mod:`.termtables`). Signatures of its blocks tell others what is not in it
(:mod:`.signatures`).

Cost: building is a radix sort and a few passes, linear in objects and terms; about 110 bytes per object with 8 terms
and an id of 11 characters, 4 to 7 for each keyword, and a byte more per term if it is counted how often texts have it.
The modules of the searches state their costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.local import wordtable
from spatialstream.local.arrays import Bytes
from spatialstream.local.columns import writable
from spatialstream.local.snapshot import termlists, termtables, zorder
from spatialstream.local.snapshot.addresses import ARRAYS, Columns, row_of
from spatialstream.local.snapshot.keywords import Decided, decided_in, flags_of, keyword_names, with_postings
from spatialstream.local.snapshot.signatures import Signatures, SignedSegment
from spatialstream.local.snapshot.stored import StoredBlocks
from spatialstream.local.wordtable import Strings, to_arrow
from spatialstream.model.arrays import string_view
from spatialstream.model.hashing import distinct_words, seed_of
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.table import PropertyTable, concat_columns
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Segment"]


class Segment:
    """An immutable block of objects and its index. Create one by :meth:`build`, :meth:`merge` or :meth:`from_arrays`.

    *Positions* are positions of objects in the segment.

    Args:
        space: the space of the objects.
        columns: the data.
        signatures: of its blocks.
        properties: of the objects, by position; None: they have none.
        stored: the fields that the stream keeps, by position; None: it keeps none.
        keyed: of each property of keywords whether it has postings; empty, and none has, in files of an earlier format.
    """

    def __init__(
        self,
        space: Space,
        columns: Columns,
        signatures: Signatures,
        properties: PropertyTable | None = None,
        stored: StoredBlocks | None = None,
        keyed: Decided | None = None,
    ) -> None:
        self.space = space
        self.columns = columns
        self.signatures = signatures
        self.properties = properties
        self.stored = stored
        self.keyed = keyed or {}

    @classmethod
    def build(cls, space: Space, objects: ObjectBatch, keyed: Decided | None = None) -> Segment:
        """Index a batch of objects, in any order; ``keyed``: what is decided of their properties."""
        terms, keyed = with_postings(objects.terms, objects.properties, keyed or {})
        columns, order = _columns(
            string_view(objects.ids),
            (objects.t, objects.x, objects.y),
            terms,
            objects.terms,
        )
        properties = PropertyTable.of(objects.properties) if objects.properties.columns else None
        stored = objects.stored.take(order).column
        return cls(
            space,
            columns,
            Signatures.of(columns),
            None if properties is None else properties.take(order),
            None if stored is None else StoredBlocks.of(stored),
            keyed,
        )

    @classmethod
    def merge(cls, parts: Sequence[Segment], keyed: Decided | None = None) -> Segment:
        """Merge the objects of several segments (at least one); ``keyed``: what is decided of their properties.

        Raises:
            OverflowError: ids or terms together need offsets of more than 31 bits.
        """
        columns = [part.columns for part in parts]
        word_offsets, words = wordtable.concatenate([(part.word_offsets, part.words) for part in columns])
        codes, firsts = distinct_words(word_offsets, words)
        ends = np.cumsum([part.terms for part in parts])
        sets = [
            termlists.decode_sets(part.columns.unit_offsets, part.columns.units, codes[end - part.terms : end])
            for part, end in zip(parts, ends.tolist(), strict=True)
        ]
        ids = wordtable.concatenate([(part.id_offsets, part.ids) for part in columns])
        t, x, y = (np.concatenate([getattr(part, name) for part in columns]) for name in ("t", "x", "y"))
        vocabulary = to_arrow(*wordtable.gather(word_offsets, words, firsts))
        texts = TermLists(*wordtable.concatenate(sets), vocabulary, _counts(columns))
        sizes = [*map(len, parts)]
        given = concat_columns([part.properties for part in parts], sizes)
        terms, keyed = with_postings(texts, given, keyed or {})
        merged, order = _columns(ids, (t, x, y), terms, texts)
        stored = StoredBlocks.merged([part.stored for part in parts], sizes, order)
        ordered = PropertyTable.of(given).take(order) if given.columns else None
        return cls(parts[0].space, merged, Signatures.of(merged), ordered, stored, keyed)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Serialize as named flat arrays."""
        arrays = {name: getattr(self.columns, name) for name in ARRAYS}
        if len(self.columns.counts):
            arrays["counts"] = self.columns.counts
        properties = {} if self.properties is None else self.properties.to_arrays()
        stored = {} if self.stored is None else self.stored.to_arrays()
        span = {"span": np.array([self.columns.t_min, self.columns.t_max], np.int64)}
        keyed = {"keyed": np.array(flags_of(self.properties, self.keyed), np.int8)} if self.keyed else {}
        return arrays | span | keyed | self.signatures.to_arrays() | properties | stored

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, npt.NDArray[Any]]) -> Segment:
        """Deserialize the result of :meth:`to_arrays`, without a copy."""
        columns: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        columns["counts"] = arrays.get("counts", np.empty(0, np.uint8))
        columns["numbers"] = np.empty(0, np.int32)
        columns["depth"] = (len(arrays["directory"]).bit_length() - 1) // 2
        columns["t_min"], columns["t_max"] = arrays["span"].tolist()
        properties = PropertyTable.from_arrays(arrays) if "property_words" in arrays else None
        stored = StoredBlocks.from_arrays(arrays) if "stored_data" in arrays else None
        keyed = decided_in(properties, arrays.get("keyed"))
        return cls(space, Columns(**columns), Signatures.from_arrays(arrays), properties, stored, keyed)

    def __len__(self) -> int:
        """Number of objects."""
        return len(self.columns.t)

    @property
    def t_min(self) -> int:
        """Least timestamp, ms."""
        return self.columns.t_min

    @property
    def t_max(self) -> int:
        """Greatest timestamp, ms; less than ``t_min`` if there are no objects."""
        return self.columns.t_max

    @property
    def unkeyed(self) -> frozenset[str]:
        """The properties of keywords that have no postings."""
        return frozenset(name for name in keyword_names(self.properties) if not self.keyed.get(name, False))

    @property
    def terms(self) -> int:
        """Number of distinct terms, keywords of properties included."""
        return len(self.columns.word_offsets) - 1

    @cached_property
    def row(self) -> npt.NDArray[np.void]:
        """The segment as a table of one row, see :mod:`~spatialstream.local.snapshot.addresses`."""
        return row_of(self.columns)

    @cached_property
    def signed(self) -> SignedSegment:
        """The segment, as its signatures describe it."""
        return SignedSegment(self.t_min, self.t_max, self.signatures)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        properties = 0 if self.properties is None else self.properties.nbytes
        stored = 0 if self.stored is None else self.stored.nbytes
        more = self.signatures.nbytes + properties + stored
        return more + sum(int(getattr(self.columns, name).nbytes) for name in (*ARRAYS, "counts"))


def _counts(columns: Sequence[Columns]) -> Bytes | None:
    """How often the texts of segments have their terms, in the order of these; None: it is not counted."""
    if not any(len(part.counts) for part in columns):
        return None
    return np.concatenate([termlists.decode_counts(part.units, part.counts) for part in columns])


def _columns(
    ids: Strings,
    places: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]],
    terms: TermLists,
    texts: TermLists,
) -> tuple[Columns, npt.NDArray[Any]]:
    """Sort and index objects: ids, (t, x, y), terms, and those of texts, which have the same codes; and their order."""
    t, x, y = places
    grid = zorder.grid_of(x, y)
    order = zorder.z_sort(grid, x, y)
    t, x, y = t[order], x[order], y[order]
    directory = zorder.directory_of(grid, x, y)

    vocabulary = string_view(terms.vocabulary)
    frequencies = _tally(terms.codes, len(terms.vocabulary))
    used = np.flatnonzero(frequencies)
    used = used[np.argsort(-frequencies[used], kind="stable")]
    ranks = np.full(len(frequencies), -1, np.int32)
    ranks[used] = np.arange(len(used), dtype=np.int32)
    posting_offsets = np.zeros(len(used) + 1, np.int32)
    np.cumsum(frequencies[used], out=posting_offsets[1:])
    unit_offsets, units, postings = termlists.encode_sets(
        terms.offsets, terms.codes, order, ranks, len(texts.vocabulary), posting_offsets
    )
    beside = np.empty(0, np.uint8)
    if texts.counts is not None:
        counts = writable(texts.counts)
        beside = termlists.encode_counts(unit_offsets, units, texts.offsets, texts.codes, counts, order, ranks)
    word_offsets, words = wordtable.gather(*vocabulary, used)
    columns = Columns(
        t,
        x,
        y,
        *wordtable.gather(*ids, order),
        unit_offsets,
        units,
        word_offsets,
        words,
        wordtable.slots_with(seed_of(word_offsets, words), word_offsets, words, len(used), len(used)),
        posting_offsets,
        postings,
        grid,
        directory,
        np.empty(0, np.int64),
        np.zeros(1, np.int64),
        np.empty(0, np.uint16),
        beside,
        np.empty(0, np.int32),
        (len(directory).bit_length() - 1) // 2,
        int(t.min()) if len(t) else 0,
        int(t.max()) if len(t) else -1,
    )
    keys, offsets, tables = termtables.term_tables(row_of(columns))
    return columns._replace(table_keys=keys, table_offsets=offsets, tables=tables), order


@kernel
def _tally(codes: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    frequencies = np.zeros(n, np.int64)
    for i in range(len(codes)):
        frequencies[codes[i]] += 1
    return frequencies
