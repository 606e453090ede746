"""The word filter: where a router partition need not send objects, because no continuous query there can match them.

In a stream that serves subscriptions only, nothing but its continuous queries reads an object. A query that requires
words is matched by no object without them, so one word of each of its groups is enough to recognize the objects that it
may match: the rarest. Each router partition knows, for each leaf, these words of the queries there, and whether a query
there requires none; an object of the leaf that has none of the words is dropped (the table H2 of PS2Stream, section
IV-C; the textual summary of Tornado, section 3.1).

The filter is exact because it is a superset. In epoch e it contains

- the words of all query records of e, whether they are admitted or not, and so does each epoch before. Every partition
  reads all of them, so nobody has to be told, and an epoch that is repeated drops the same objects;
- of a query of any type, the words without which an object changes none of its rows: the words of its condition; of a
  CBQ, which only scores objects with one of its words, also these. A CKQ concerns all leaves, until a census says that
  it has settled (:mod:`~spatialstream.stages.settling`).

In a stream in which each CKQ is on one slot (:mod:`~spatialstream.index.query_partition`), whatever it serves, the
filter has the words of the CKQs of each slot: an object is copied to the slots that have one of its words.

Words of queries that have ended would stay forever. So the slots write what they have now and then (:class:`Groups`,
*census*), and a partition replaces what it has up to the last epoch of that round with the union of all slots, keeping
what has come since (lazy cleaning: Tornado, section 4.6). When a version is being prepared, the slots write the same
for its leaves, and from that epoch on a partition collects new words for its leaves too; so when it becomes active, the
filter for it is complete.

Words are stable hashes of 64 bits: two words with the same hash keep an object too many. Which word of a group is the
rarest is estimated by each partition (:class:`Frequencies`); another choice would be as exact.

Cost: a look at each word of an object, and for objects with a word of any query a search of the tree and a look-up for
each such word (``python -m tests.benchmarks words``). State: 12 bytes for each word of each leaf, and its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from spatialstream.connectors.contracts import Storage
from spatialstream.index.base import GlobalIndex, LeafWords
from spatialstream.index.query_partition import QueryPartition
from spatialstream.index.version import RoutingVersion
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.arrays import Array, Codes, Flags, Ints, Words, pack_arrays, runs, unpack_arrays
from spatialstream.model.expressions import Expression, expanded
from spatialstream.model.hashing import Table, find_all, hash_strings, make_table
from spatialstream.model.kinds import IS_CONTINUOUS, having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.terms import TermLists
from spatialstream.stages.routing import Routing
from spatialstream.stages.settling import EVERYWHERE, is_everywhere, reaching
from spatialstream.stages.turns import Census, Epoch

__all__ = [
    "LATEST",
    "WORDS",
    "Entries",
    "Frequencies",
    "Groups",
    "WordFilter",
    "census_name",
    "drop_words",
    "prepared_name",
    "write_groups",
]

WORDS = "words/"
"""Prefix of the names of what slots write for the filters."""

LATEST = f"{WORDS}census.json"
"""The name of the last census that is complete, a :class:`~spatialstream.stages.turns.Census`."""

_ROUND, _VERSION = f"{WORDS}round-", f"{WORDS}version-"

_EVERY_LEAF = -1
"""In place of a leaf: all of them."""

_FIRST_SLOT = -2
"""In place of a leaf: slot 0; slot i is ``_FIRST_SLOT - i``. It has CKQs, of which each is on one slot."""

_ANY_WORD = np.uint64(0)
"""In place of a word: the query requires none."""

_RANKED = having(lambda kind: kind.is_ranked)

_COUNTERS_LOG2 = 16
_PERIOD, _WINDOW = 1 << 20, 1 << 16
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SMALL = 4_096
"""Entries that are looked up beside the large table before they are merged with it, at least."""


# ---------------------------------------------------------------------------------------------------------------- files


def census_name(turn: tuple[int, int], slot: int) -> str:
    """The file of a slot's groups after a round (number, revision) with a census."""
    number, revision = turn
    return f"{_ROUND}{number:09d}-{revision}-{slot:04d}.arrays"


def prepared_name(version: int, slot: int) -> str:
    """The file of a slot's groups by the leaves of a version that is being prepared."""
    return f"{_VERSION}{version:06d}-{slot:04d}.arrays"


def drop_words(storage: Storage, round_: int, version: int) -> None:
    """Delete what no replay reads any more: files of rounds before this one, and of versions up to this one."""
    old = [name for name in storage.list(WORDS) if _is_before(name, round_, version)]
    storage.discard(old)


def _is_before(name: str, round_: int, version: int) -> bool:
    if name.startswith(_ROUND):
        return int(name.removeprefix(_ROUND)[:9]) < round_
    return name.startswith(_VERSION) and int(name.removeprefix(_VERSION)[:6]) <= version


def write_groups(storage: Storage, name: str, groups: Groups) -> None:
    """Write a file of groups."""
    storage.put(name, *pack_arrays(groups.to_arrays()))


def _read_groups(storage: Storage, names: Iterable[str]) -> Groups:
    """The groups of several files.

    Raises:
        Missing: one is not there.
        StateError: one is damaged.
    """
    parts = (unpack_arrays(storage.get(name), f"{storage.place}/{name}")[0] for name in names)
    return Groups.concat([Groups(**arrays) for arrays in parts])


# --------------------------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of words, of which an object has all of at least one if it matches a query; and where the queries are.

    Attributes:
        offsets: int64[g + 1]; group i is ``words[offsets[i]:offsets[i + 1]]``. An empty group: any object may match.
        words: uint64, hashes.
        group: int32[m], a group at a leaf.
        leaf: int32[m], the leaf; -1 for all leaves; -2 - i for slot i.
    """

    offsets: Ints
    words: Words
    group: Codes
    leaf: Codes

    @classmethod
    def of(
        cls,
        queries: QueryBatch,
        index: GlobalIndex,
        within: Flags | None = None,
        nearest: QueryPartition | None = None,
    ) -> Self:
        """The groups of the continuous ones of some queries.

        Args:
            queries: the queries.
            index: of the leaves.
            within: bool[leaves], only for these leaves; None: for all.
            nearest: the slots of CKQs, if each is on one.
        """
        rows = np.flatnonzero(IS_CONTINUOUS[queries.code])
        queries = queries if len(rows) == len(queries) else queries.take(rows)
        row, leaf = _leaves_of(queries, index, nearest)
        if within is not None:
            here = (leaf < 0) | within[np.maximum(leaf, 0)]
            row, leaf = row[here], leaf[here]
        owner, lists = _conjunctions(queries)
        bounds = np.searchsorted(owner, np.arange(len(queries) + 1))
        first, size = bounds[:-1][row], np.diff(bounds)[row]
        return cls._at(lists, runs(first, size), np.repeat(leaf, size))

    @classmethod
    def everywhere(cls, conditions: TermLists) -> Self:
        """The groups of conditions on the text, at every leaf."""
        _, lists = _plain(conditions)
        return cls._at(lists, np.arange(len(lists)), np.full(len(lists), _EVERY_LEAF))

    @classmethod
    def _at(cls, lists: TermLists, group: Array, leaf: Array) -> Self:
        words = hash_strings(lists.vocabulary)[lists.codes]
        return cls(lists.offsets.astype(np.int64), words, group.astype(np.int32), leaf.astype(np.int32))

    @classmethod
    def concat(cls, parts: Sequence[Groups]) -> Groups:
        """All groups of several."""
        sizes = [np.diff(part.offsets) for part in parts]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate([np.empty(0, np.int64), *sizes]))])
        group, known = [np.empty(0, np.int32)], 0
        for part, size in zip(parts, sizes, strict=True):
            group.append(part.group + np.int32(known))
            known += len(size)
        words, leaf = [np.empty(0, np.uint64)], [np.empty(0, np.int32)]
        words += [part.words for part in parts]
        leaf += [part.leaf for part in parts]
        return cls(offsets, np.concatenate(words), np.concatenate(group), np.concatenate(leaf))

    def to_arrays(self) -> dict[str, Array]:
        """Serialize as named flat arrays."""
        return {name: getattr(self, name) for name in self.__slots__}

    def rarest(self, counts: Frequencies) -> Entries:
        """One word of each group at each of its leaves: that with the smallest count, ties by hash."""
        sizes = np.diff(self.offsets)
        of_word = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((self.words, counts.of(self.words), of_word))
        chosen = np.full(len(sizes), _ANY_WORD)
        there = sizes > 0
        chosen[there] = self.words[order[self.offsets[:-1][there]]]
        return Entries.of(self.leaf, chosen[self.group])

    def all_words(self) -> Entries:
        """Every word of each group at each of its leaves."""
        sizes = np.diff(self.offsets)[self.group]
        words = self.words[runs(self.offsets[:-1][self.group], sizes)]
        leaf, empty = np.repeat(self.leaf, sizes), self.leaf[sizes == 0]
        return Entries.of(np.append(leaf, empty), np.append(words, np.full(len(empty), _ANY_WORD)))


def _leaves_of(queries: QueryBatch, index: GlobalIndex, nearest: QueryPartition | None) -> tuple[Codes, Codes]:
    """(row, leaf) of each query."""
    at_all = is_everywhere(queries)
    regional, everywhere = np.flatnonzero(~at_all), np.flatnonzero(at_all)
    row, leaf = index.route_queries(reaching(queries.take(regional), index.space))
    rows = np.append(regional[row], everywhere).astype(np.int32)
    places = np.full(len(everywhere), _EVERY_LEAF)
    if nearest is not None:
        places = _FIRST_SLOT - nearest.slots_of(queries.take(everywhere))
    return rows, np.append(leaf, places).astype(np.int32)


def _plain(conditions: TermLists) -> tuple[Codes, TermLists]:
    """The groups of conditions on the text: the owner of each, ascending, and its words."""
    parts = expanded(conditions)
    return parts.owner, parts.groups


def _conjunctions(queries: QueryBatch) -> tuple[Array, TermLists]:
    """The groups of queries: the row of each, ascending, and its words.

    An object concerns a ranked query only if it has one of its words too.
    """
    ranked = np.flatnonzero(_RANKED[queries.code])
    if not len(ranked):
        return _plain(queries.keywords)
    unranked = np.flatnonzero(~_RANKED[queries.code])
    owner, lists = _plain(queries.keywords.take(unranked))
    owners, groups = list[int](), list[tuple[str, ...]]()
    for row in ranked.tolist():
        given = Expression.of(queries.keywords[row])
        words = Ranking.of_text(queries.ranking[row].as_py()).words
        mine = given.any or tuple((*given.keywords, word) for word in words)
        owners += [row] * len(mine)
        groups += mine
    of_all = np.append(unranked[owner], np.array(owners, np.int64))
    order = np.argsort(of_all, kind="stable")
    return of_all[order], TermLists.concat([lists, TermLists.of(groups)]).take(order)


# -------------------------------------------------------------------------------------------------------------- entries


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Words by leaf, distinct and ascending by (leaf, word).

    Attributes:
        leaf: int32[m]; -1 for all leaves; -2 - i for slot i.
        word: uint64[m]; 0: a query there requires no word.
    """

    leaf: Codes
    word: Words

    @classmethod
    def of(cls, leaf: Array, word: Words) -> Self:
        """Sort, without duplicates."""
        order = np.lexsort((word, leaf))
        leaf, word = leaf[order].astype(np.int32), word[order]
        new = np.ones(len(leaf), np.bool_)
        new[1:] = (leaf[1:] != leaf[:-1]) | (word[1:] != word[:-1])
        return cls(leaf[new], word[new])

    @classmethod
    def none(cls) -> Self:
        """No entries."""
        return cls(np.empty(0, np.int32), np.empty(0, np.uint64))

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.leaf)

    @classmethod
    def union(cls, parts: Sequence[Entries]) -> Entries:
        """The entries of several."""
        if len(parts) == 1:
            return parts[0]
        leaf = np.concatenate([np.empty(0, np.int32), *(part.leaf for part in parts)])
        return cls.of(leaf, np.concatenate([np.empty(0, np.uint64), *(part.word for part in parts)]))


class Frequencies:
    """Approximate counts of the words of a partition's objects, by hash, in bounded memory.

    As :class:`~spatialstream.local.range.frequencies.TermFrequencies`: the first 65,536 objects of every 1,048,576 are
    counted, and before each such window the counts are halved. A function of the batches.
    """

    def __init__(self) -> None:
        self._counters = np.zeros(1 << _COUNTERS_LOG2, np.uint32)
        self._seen = self._windows = 0
        self._file: str | None = None

    def observe(self, objects: ObjectBatch) -> None:
        """Process the next objects. A batch is counted completely or not at all."""
        period, phase = divmod(self._seen, _PERIOD)
        self._seen += len(objects)
        if phase >= _WINDOW or not len(objects):
            return
        if period >= self._windows:
            self._windows = period + 1
            self._counters >>= np.uint32(1)
        terms = objects.terms
        counts = np.bincount(_codes(terms), minlength=len(terms.vocabulary))
        np.add.at(self._counters, _counter(hash_strings(terms.vocabulary)), counts.astype(np.uint32))
        self._file = None

    def of(self, words: Words) -> Array:
        """The count of each word, uint32[n]."""
        counts: Array = self._counters[_counter(words)]
        return counts

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        if self._file is None and self._counters.any():
            self._file = write("frequencies", {"counters": self._counters})
        return {"file": self._file, "seen": self._seen, "windows": self._windows}

    @classmethod
    def restore(cls, manifest: Manifest, read: ReadFile) -> Self:
        """See :mod:`spatialstream.local.state`."""
        self = cls()
        self._seen, self._windows, self._file = manifest["seen"], manifest["windows"], manifest["file"]
        if self._file is not None:
            self._counters = read(self._file)[0]["counters"].copy()
        return self


def _counter(words: Words) -> Array:
    counter: Array = (words >> np.uint64(64 - _COUNTERS_LOG2)).astype(np.int64)
    return counter


def _codes(terms: TermLists) -> Codes:
    return terms.codes[int(terms.offsets[0]) : int(terms.offsets[-1])]


class _Lookup:
    """Entries, to be looked up."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        asks_any, is_everywhere = entries.word == _ANY_WORD, entries.leaf < 0
        plain = ~asks_any & ~is_everywhere
        self.keeps_all = bool((asks_any & is_everywhere).any())
        self.open = entries.leaf[asks_any & ~is_everywhere]
        """The leaves of which all objects are kept."""
        self.anywhere = make_table(np.unique(entries.word[is_everywhere & ~asks_any]))
        self.words = make_table(np.unique(entries.word[~asks_any]))
        self.cells = make_table(_keys(entries.leaf[plain], entries.word[plain]))
        placed = np.flatnonzero((entries.leaf <= _FIRST_SLOT) & ~asks_any)
        placed = placed[np.argsort(entries.word[placed], kind="stable")]
        slots = _FIRST_SLOT - entries.leaf
        self.all_to = slots[asks_any & (slots >= 0)]
        """The slots that get all objects for a CKQ."""
        self.placed = entries.word[placed], slots[placed]
        """Words of CKQs, ascending, and the slot of each."""


def _keys(leaf: Array, word: Words) -> Words:
    """A number for each (leaf, word)."""
    keys: Words = word ^ (leaf.astype(np.uint64) + np.uint64(1)) * _SPREAD
    return keys


def _has(tables: Iterable[Table], hashes: Words) -> Flags:
    """Whether any of the tables has each hash."""
    found = np.zeros(len(hashes), np.bool_)
    for table in tables:
        found |= find_all(table, hashes) >= 0
    return found


# --------------------------------------------------------------------------------------------------------------- filter


def _groups_of(queries: QueryBatch, version: RoutingVersion) -> Groups:
    return Groups.of(queries, version.index, nearest=version.nearest)


class WordFilter:
    """The filter of one router partition, which is part of its state."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._base = Entries.none()
        self._since: list[tuple[int, Entries]] = []
        """By epoch, what has come since the last census, or since the version was prepared."""
        self._coming: tuple[int, list[Entries]] | None = None
        """The version that is being prepared, and what has come for it since."""
        self._counts = Frequencies()
        self._base_file: str | None = None
        self._large, self._small = _Lookup(Entries.none()), _Lookup(Entries.none())

    def advance(
        self,
        epoch: Epoch,
        routing: Routing,
        objects: ObjectBatch | None,
        queries: QueryBatch | None,
        storage: Storage,
    ) -> None:
        """Go on to an epoch.

        Args:
            epoch: the epoch.
            routing: of the epoch.
            objects: those of this partition.
            queries: those of all partitions.
            storage: of what slots have written.

        Raises:
            Missing: slots have not written what the epoch reads.
        """
        if objects is not None:
            self._counts.observe(objects)
        if self._version is None:
            self._version = epoch.version
        if self._version != epoch.version:
            self._activate(epoch.version, routing, storage)
        elif epoch.census is not None:
            self._clean(epoch.census, routing, storage)
        if epoch.pending is None:
            self._coming = None
        elif self._coming is None or self._coming[0] != epoch.pending:
            self._coming = epoch.pending, []
        if queries is not None and not epoch.filtered:
            queries = queries.take(np.flatnonzero(EVERYWHERE[queries.code]))
        if queries is not None and len(queries):
            self._add(epoch.number, routing, queries)

    def _activate(self, version: int, routing: Routing, storage: Storage) -> None:
        """Go on with a version for which slots have written their groups when it was prepared."""
        names = [prepared_name(version, slot) for slot in range(routing.slots)]
        self._base = self._chosen(_read_groups(storage, names), routing.active.index)
        since = self._coming[1] if self._coming is not None and self._coming[0] == version else []
        self._since = [(_BEFORE_ALL, entries) for entries in since]
        self._version, self._base_file = version, None
        self._compile()

    def _clean(self, census: Census, routing: Routing, storage: Storage) -> None:
        """Replace what has come up to a census."""
        names = [census_name((census.round, census.revision), slot) for slot in range(routing.slots)]
        self._base = self._chosen(_read_groups(storage, names), routing.active.index)
        self._since = [(number, entries) for number, entries in self._since if number > census.epoch]
        self._base_file = None
        self._compile()

    def _add(self, number: int, routing: Routing, queries: QueryBatch) -> None:
        new = self._chosen(_groups_of(queries, routing.active), routing.active.index)
        if len(new):
            self._since.append((number, new))
            small = Entries.union([self._small.entries, new])
            if len(small) > _SMALL + len(self._large.entries) // 4:
                self._large = _Lookup(Entries.union([self._large.entries, small]))
                small = Entries.none()
            self._small = _Lookup(small)
        if self._coming is not None and routing.pending is not None:
            groups = _groups_of(queries, routing.pending)
            self._coming[1].append(self._chosen(groups, routing.pending.index))

    def _chosen(self, groups: Groups, index: GlobalIndex) -> Entries:
        """The entries of groups; an index that replicates chooses words itself, so it is told all."""
        return groups.all_words() if index.replicates else groups.rarest(self._counts)

    def _compile(self) -> None:
        self._large = _Lookup(self._base)
        self._small = _Lookup(Entries.union([Entries.none(), *(entries for _, entries in self._since)]))

    def __len__(self) -> int:
        """Number of (leaf, word) pairs that it has, at most."""
        return len(self._large.entries) + len(self._small.entries)

    def kept(self, objects: ObjectBatch, index: GlobalIndex) -> Ints:
        """The objects that some continuous query may match, as rows, ascending.

        Args:
            objects: the objects.
            index: that of the active version.
        """
        lookups = self._large, self._small
        if any(each.keeps_all for each in lookups):
            return np.arange(len(objects))
        terms = objects.terms
        codes, hashes = _codes(terms), hash_strings(terms.vocabulary)
        at = np.flatnonzero(_has((each.words for each in lookups), hashes)[codes])
        row = np.searchsorted(terms.offsets - terms.offsets[0], at, side="right") - 1
        word = hashes[codes[at]]
        needed = np.zeros(len(objects), np.bool_)
        everywhere = np.ones(len(at), np.bool_) if index.replicates else _has((x.anywhere for x in lookups), word)
        needed[row[everywhere]] = True
        open_ = np.zeros(len(index.leaves), np.bool_)
        for each in lookups:
            open_[each.open] = True
        undecided = np.flatnonzero(~needed) if open_.any() else np.unique(row[~needed[row]])
        if len(undecided):
            leaf = np.full(len(objects), _EVERY_LEAF, np.int32)
            leaf[undecided] = index.route_objects(
                objects if len(undecided) == len(objects) else objects.take(undecided)
            )
            needed[undecided] |= open_[leaf[undecided]]
            needed[row[_has((each.cells for each in lookups), _keys(leaf[row], word))]] = True
        return np.flatnonzero(needed)

    def slots_for(self, objects: ObjectBatch, slots: int) -> tuple[Ints, Codes]:
        """The slots that may have a CKQ which an object matches, if each CKQ is on one slot.

        Args:
            objects: the objects.
            slots: number of slots.

        Returns:
            row int64[m], slot int32[m], ascending, each pair once.
        """
        terms, hashes = objects.terms, hash_strings(objects.terms.vocabulary)
        codes, row = _codes(terms), np.repeat(np.arange(len(objects)), np.diff(terms.offsets))
        keys = [np.empty(0, np.int64)]
        for each in (self._large, self._small):
            words, slot = each.placed
            first, last = (np.searchsorted(words, hashes, side) for side in ("left", "right"))
            size = (last - first)[codes]
            keys.append(np.repeat(row, size) * slots + slot[runs(first[codes], size)])
            keys.append((np.arange(len(objects))[:, np.newaxis] * slots + each.all_to).reshape(-1))
        key = np.unique(np.concatenate(keys))
        return key // slots, (key % slots).astype(np.int32)

    def leaf_words(self, leaves: int) -> LeafWords:
        """At least the words under which CRQs are registered at each of n leaves, without duplicates.

        For :meth:`~spatialstream.index.base.GlobalIndex.copies`. Words of queries that concern all leaves, which are
        no CRQs, are not among them.
        """
        entries = Entries.union([self._large.entries, self._small.entries])
        there = (entries.leaf >= 0) & (entries.word != _ANY_WORD)
        leaf, word = entries.leaf[there], entries.word[there]
        return np.searchsorted(leaf, np.arange(leaves + 1)).astype(np.int64), word

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        if self._base_file is None:
            self._base_file = write("words", {"leaf": self._base.leaf, "word": self._base.word})
        return {
            "version": self._version,
            "base": self._base_file,
            "since": self._written(write, "words-since", [entries for _, entries in self._since]),
            "epochs": [number for number, _ in self._since],
            "coming": None if self._coming is None else self._coming[0],
            "prepared": None if self._coming is None else self._written(write, "words-coming", self._coming[1]),
            "counts": self._counts.checkpoint(write),
        }

    @staticmethod
    def _written(write: WriteFile, kind: str, parts: Sequence[Entries]) -> str | None:
        if not parts:
            return None
        leaf, word = (np.concatenate([getattr(part, name) for part in parts]) for name in ("leaf", "word"))
        return write(kind, {"leaf": leaf, "word": word, "sizes": np.array([len(part) for part in parts], np.int64)})

    @classmethod
    def restore(cls, manifest: Manifest, read: ReadFile) -> Self:
        """See :mod:`spatialstream.local.state`."""
        self = cls()
        self._version, self._base_file = manifest["version"], manifest["base"]
        self._base = _entries(read(manifest["base"])[0])
        self._since = list(zip(manifest["epochs"], _parts(manifest["since"], read), strict=True))
        if manifest["coming"] is not None:
            self._coming = manifest["coming"], _parts(manifest["prepared"], read)
        self._counts = Frequencies.restore(manifest["counts"], read)
        self._compile()
        return self


_BEFORE_ALL = -1
"""In place of an epoch: it was before the version became active, so any census of the version has it."""


def _entries(arrays: Mapping[str, Any]) -> Entries:
    return Entries(arrays["leaf"], arrays["word"])


def _parts(name: str | None, read: ReadFile) -> list[Entries]:
    if name is None:
        return []
    arrays = read(name)[0]
    ends = np.cumsum(arrays["sizes"])
    pieces = zip((ends - arrays["sizes"]).tolist(), ends.tolist(), strict=True)
    return [Entries(arrays["leaf"][first:last], arrays["word"][first:last]) for first, last in pieces]
