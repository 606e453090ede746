"""Storage in an object store: ``s3://bucket/prefix``, and stores with the same protocol.

An object is put completely by one request, or in parts that become an object with the last request; it is read, listed
and deleted. Nothing else is required of the store, and S3's guarantee since 2020 is enough: an object that has been put
is visible to all readers (strong read-after-write consistency). Only one file is put on condition that it does not
exist (``If-None-Match: *``), see :meth:`ObjectStorage.create`.

Failures
    Lost connections, timeouts, 5xx and ``503 SlowDown`` are retried, with growing pauses, for :attr:`patience`
    seconds. A failure that persists is :class:`~spatialstream.model.errors.NoStorage`: the store is unreachable, or
    denies access. The request itself is correct, so jobs wait. A store without room is a full disk (``ENOSPC``). A lost
    request may be executed late, over a newer one: that does no harm to files whose content is a function of their
    names, and ``done`` is then outdated, which costs a turn.

Slow links
    When reading, each byte that arrives is noticed; when sending, nothing, before there is an answer. So a request with
    a large body fails only after :attr:`read_timeout` plus the time that a link of 1 MiB/s may need for all that this
    process sends. That is at most 32 s, because the bytes in flight are bounded (:class:`TransferLimits`). A small
    request has only :attr:`read_timeout`.

Credentials
    ``AWS_SHARED_CREDENTIALS_FILE``, a file that may be a mounted Secret, is read again whenever credentials are needed,
    so they can be rotated. Without it the client's own chain is used: ``AWS_ACCESS_KEY_ID`` and
    ``AWS_SECRET_ACCESS_KEY``, a token file of a workload identity (read again each time), the metadata of the machine.
    A pickle contains none of them: each machine has its own environment. Nor does any message. ``AWS_CA_BUNDLE``,
    authorities that are trusted in addition to the system's, is read with each request; new content leads to a new
    client.

The library is obstore (Rust's ``object_store``). It keeps threads, so a process that has sent a request must not fork;
each process has clients of its own. Google's and Azure's stores are accepted by their URLs (``gs://``, ``az://``), and
have not been tested.
"""

from __future__ import annotations

import atexit
import configparser
import errno
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from spatialstream.connectors.calls import called
from spatialstream.connectors.contracts import File, Puts
from spatialstream.connectors.folder import checked
from spatialstream.connectors.local_cache import LocalCache
from spatialstream.connectors.requests import count_request
from spatialstream.model.errors import Missing, NoStorage, SettingError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["KEPT", "PUTS_AT_ONCE", "ObjectStorage", "TransferLimits", "forget_clients", "is_url"]

T = TypeVar("T")

_SCHEMES = ("s3", "gs", "az")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
KEPT = re.compile(r"input/.*|state/.*\.arrays|rounds/.*\.second")
"""Files that are read more than once and never change during a job, because their names contain a try or a revision:
runs, dead letters, the arrays of structures, and files of second phases."""

_PARTS_AT_ONCE = 2
_SMALL_BYTES = 64 << 10
"""Maximum size of a body that waits for no other, and whose answer comes soon over any link."""
PUTS_AT_ONCE = 16
"""Maximum concurrent puts of a process; beginning another one waits. So few copies wait for the network."""
_PAGE = 1000
"""Names listed, or deleted, by one request."""
_CONNECT_SECONDS = 5
_LONGEST_SECONDS = 3600
"""Maximum duration of a request, however steadily its bytes come: 3.5 GB over the slowest link."""
_RETRIES = 3
"""Retries of one request by the library; after them it is signed again, by credentials that may have changed."""
_FIRST_PAUSE = 0.1
_CREDENTIALS_SECONDS = 60
_AT_EXIT_SECONDS = 10.0

_FULL = re.compile(r"QuotaExceeded|StorageFull|InsufficientStorage|NoSpace|status code: 507")
"""Errors of stores that have no room, or whose quota for this user is used up."""
_REFUSED = re.compile(r"status code: 4(?!08|09|29)\d\d(?!.*RequestTimeout)|AccessDenied|NoSuchBucket", re.DOTALL)
"""Errors that a retry does not change: not those of requests that took too long, conflicted, or were too many."""
_ANSWER = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_CERTIFICATE = re.compile(r"\bInvalidCertificate\(\s*(\w+)")
_CAUSE = re.compile(r'\b(?:AlertReceived|InvalidMessage)\(\s*(\w+)|"(dns error)"|\b(TimedOut)\b|\bmessage: "([\w ]+)"')
"""The cause in the library's report of a request without an answer, below its first line."""
_CAUSES = {
    "UnknownIssuer": "was issued by an unknown authority",
    "Expired": "has expired",
    "NotValidYet": "is not valid yet",
    "NotValidForName": "is for another name",
    "InvalidContentType": "it does not speak TLS",
    "dns error": "its name is not found",
    "TimedOut": "no answer in time",
}


def is_url(text: str) -> bool:
    """Whether a place is a URL, not a folder."""
    return "://" in text or text.partition(":")[0] in _SCHEMES


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Sizes and pauses of the requests to a store; the defaults suit any store that speaks S3.

    Attributes:
        part_bytes: size of the parts of a file; a smaller file is put by one request. S3 accepts 10,000 parts: files of
            up to 80 GB.
        bytes_at_once: maximum bytes of larger bodies that a process has in flight.
        slowest: bytes per second of the slowest link that is fast enough.
        later_bytes: approximate maximum bytes of puts that nobody waits for; beyond it, callers wait.
        longest_pause: maximum seconds between two attempts.
    """

    part_bytes: int = 8 << 20
    bytes_at_once: int = 32 << 20
    slowest: int = 1 << 20
    later_bytes: int = 64 << 20
    longest_pause: float = 5.0

    def extra_seconds(self, size: int) -> float:
        """Seconds that the body of a request may take, by its bytes: a power of 2, as each timeout has a client."""
        if size <= _SMALL_BYTES:
            return 0.0
        return 2.0 ** math.ceil(math.log2(min(size * PUTS_AT_ONCE, self.bytes_at_once) / self.slowest))


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """A bucket, or a part of it, as a :class:`~spatialstream.connectors.contracts.Storage`.

    Attributes:
        url: ``s3://bucket/prefix``.
        cache: of this job, on each machine; None: everything is read from the store.
        patience: seconds for which a failure is retried, from the first one on.
        read_timeout: seconds without a byte after which a request has failed; for a large body, plus the time that its
            bytes may take.
        limits: sizes and pauses of its requests.
    """

    url: str
    cache: LocalCache | None = None
    patience: float = 30.0
    read_timeout: float = 10.0
    limits: TransferLimits = TransferLimits()

    @classmethod
    def parse(cls, text: str, setting: str, cache: LocalCache | None = None) -> ObjectStorage:
        """A storage from its URL.

        Raises:
            SettingError: the URL is invalid; says what would be right.
        """
        scheme, _, rest = text.partition("://")
        bucket, _, prefix = rest.rstrip("/").partition("/")
        if not rest or scheme not in _SCHEMES:
            known = ", ".join(f"{each}://" for each in _SCHEMES)
            raise SettingError(setting, f"{text!r} is neither a folder nor a URL of {known}; give s3://bucket/prefix")
        if not _BUCKET.fullmatch(bucket):
            right = "3 to 63 of a-z, 0-9, - and ."
            raise SettingError(setting, f"{bucket!r} is not a valid bucket name ({right}); give s3://bucket/prefix")
        try:
            return cls(f"{scheme}://{bucket}/{checked(prefix)}" if prefix else f"{scheme}://{bucket}", cache)
        except ValueError:
            right = "letters, digits and _ . = -, in parts separated by /, none of which begins with a dot"
            told = "other settings of the store are environment variables (AWS_ENDPOINT_URL, ...)"
            raise SettingError(setting, f"{prefix!r} cannot be a prefix: give {right}; {told}") from None

    @property
    def place(self) -> str:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        return self.url

    @property
    def is_far(self) -> bool:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        return True

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        self._later.forget([checked(name)])
        self.put_now(name, *views)
        if self.cache is not None and KEPT.fullmatch(name):
            self.cache.put(name, views)

    def begin_put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`: in a thread of its own, when one is free."""
        checked(name)

        def put() -> None:
            try:
                self.put(name, *parts)
            finally:
                _free.release()

        _free.acquire()
        _begun.puts.setdefault(self, []).append(called(put))

    def await_puts(self) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        errors = [put.exception() for put in _begun.puts.pop(self, ())]
        for error in errors:
            if error is not None:
                raise error

    def put_set(self, files: Sequence[File], seal: File, after: Puts | None = None) -> Puts:
        """See :class:`~spatialstream.connectors.contracts.Storage`: in threads of their own."""
        for name, _ in (*files, seal):
            checked(name)
        return _Set(self, files, seal, after)

    def create(self, name: str, data: bytes) -> bool:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""

        def put(store: ObjectStore) -> bool:
            count_request("put", len(data))
            try:
                obstore.put(store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:  # by another process; or by this call, and the answer got lost
                return bytes(_get(store, name)) == data
            return True

        return self._ask(checked(name), put)

    def get(self, name: str) -> pa.Buffer:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        cache = self.cache if KEPT.fullmatch(checked(name)) else None
        cached = None if cache is None else cache.get(name)
        if cached is None:
            if (data := self._later.get(name)) is not None:
                return pa.py_buffer(bytearray(data))
            read = self._ask(name, lambda store: _get(store, name))
            if cache is not None:
                cache.put(name, [read])
                cached = cache.get(name)
        return pa.py_buffer(bytearray(read)) if cached is None else cached

    def list(self, prefix: str) -> list[str]:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        if prefix:
            checked(prefix.removesuffix("/"))

        return self._ask(prefix, lambda store: _list(store, prefix))

    def delete(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        gone = [checked(name) for name in names]
        self._later.forget(gone)
        self.delete_now(gone)

    def put_later(self, name: str, data: bytes | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        content = bytes(data)
        if self.cache is not None and KEPT.fullmatch(checked(name)):
            self.cache.put(name, [memoryview(content)])
        self._later.add({checked(name): content})

    def share(self, name: str, data: bytes | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`: in the cache, unless that has no room."""
        if self.cache is None or not KEPT.fullmatch(checked(name)) or not self.cache.put(name, [memoryview(data)]):
            self.put_now(name, memoryview(data))

    def discard(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`: one request for all that have accumulated."""
        self._later.add({checked(name): None for name in names})

    def wait_later(self, seconds: float) -> bool:
        """Wait until all that this process puts and discards later is done, for so long; returns whether it is."""
        return self._later.wait(seconds)

    @property
    def _later(self) -> _Later:
        """The deferred operations of this process."""
        return _later(self, os.getpid())

    def put_now(self, name: str, *parts: bytes | memoryview) -> None:
        """Put a file immediately, whatever operation on it is deferred."""
        self._ask(name, lambda store: _put(store, name, parts, self.limits), sum(map(len, parts)))

    def delete_now(self, names: Sequence[str]) -> None:
        """Delete files immediately, likewise."""
        if names:
            self._ask(names[0], lambda store: _delete(store, names))
            if self.cache is not None:
                self.cache.drop(names)

    def _ask(self, name: str, request: Callable[[ObjectStore], T], size: int = 0) -> T:
        """Send a request to the store, with retries while they may help.

        Args:
            name: of the file.
            request: sends the request.
            size: bytes that it sends.

        Raises:
            Missing: there is no such file.
            NoStorage: the store is unreachable, or denies access.
            OSError: it is full.
        """
        until, pause = None, _FIRST_PAUSE
        while True:
            authorities = _authorities() if self.url.startswith("s3:") else None
            store = _client(
                self.url,
                self.read_timeout + self.limits.extra_seconds(size),
                authorities,
                os.getpid(),
                self.limits.longest_pause,
            )
            try:
                return request(store)
            except (BaseError, FileNotFoundError) as error:
                file, text = f"{self.url}/{name}".rstrip("/"), str(error)
                reason = _said(text)
                if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
                    raise Missing(f"{file} is missing") from None
                if _FULL.search(text):
                    raise OSError(errno.ENOSPC, f"the store has no room: {reason}", file) from None
                denied = isinstance(error, PermissionDeniedError | UnauthenticatedError | FileNotFoundError)
                if denied or _REFUSED.search(text):
                    raise NoStorage(f"{file} is denied: {reason}") from None
                until = time.monotonic() + self.patience if until is None else until
                if time.monotonic() + pause > until:
                    raise NoStorage(f"{file} cannot be reached: {reason}") from None
            time.sleep(pause)
            pause = min(2 * pause, self.limits.longest_pause)


def _get(store: ObjectStore, name: str) -> memoryview:
    read = memoryview(obstore.get(store, name).bytes())
    count_request("get", len(read))
    return read


def _list(store: ObjectStore, prefix: str) -> list[str]:
    names = sorted(each["path"] for some in obstore.list(store, prefix or None) for each in some)
    count_request("list", requests=_pages(names))
    return names


def _pages(names: Sequence[str]) -> int:
    """The number of requests that list names, or delete them."""
    return max(1, -(-len(names) // _PAGE))


def _put(store: ObjectStore, name: str, parts: Sequence[bytes | memoryview], limits: TransferLimits) -> None:
    size, most = sum(map(len, parts)), limits.part_bytes
    with _sending.some(min(size, _PARTS_AT_ONCE * most), limits.bytes_at_once):
        if size <= most:
            count_request("put", size)
            obstore.put(store, name, b"".join(parts), use_multipart=False)
        else:
            count_request("put", size, -(-size // most) + 2)
            pieces = (part[at : at + most] for part in parts for at in range(0, len(part), most))
            # the library limits the parts in flight before each part but the last: so an empty one is added
            given = chain(pieces, [b""])
            obstore.put(store, name, given, chunk_size=most, max_concurrency=_PARTS_AT_ONCE)


class _Sending:
    """The bytes of large bodies that this process has in flight."""

    def __init__(self) -> None:
        self._turn, self._changed, self._bytes = threading.Lock(), threading.Condition(), 0

    @contextmanager
    def some(self, size: int, most: int) -> Iterator[None]:
        """Wait until that many more are allowed, with ``most`` in all; first come, first served."""
        if size <= _SMALL_BYTES:
            yield
            return
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self._bytes + size <= most)
            self._bytes += size
        try:
            yield
        finally:
            with self._changed:
                self._bytes -= size
                self._changed.notify_all()


_sending = _Sending()


def _delete(store: ObjectStore, names: Sequence[str]) -> None:
    count_request("delete", requests=_pages(names))
    try:
        obstore.delete(store, names)  # a page per request, if the store supports that
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise
        for name in names:  # stores without such a request fail for a file that is gone already
            with suppress(FileNotFoundError):
                obstore.delete(store, name)


def _said(text: str) -> str:
    """The error of a store, or of the library, in one line, without the request, which may contain secrets."""
    if answer := _ANSWER.search(text):
        return answer[1] + (f" ({answer[2]})" if answer[2] else "")
    first, _, rest = text.partition("\n")
    said = re.sub(r"^Generic \w+ error: |\?\S*", "", first)[:300]  # without the query of a URL
    return f"{said} ({cause})" if (cause := _cause(rest)) else said


def _cause(text: str) -> str:
    """Why there was no answer; empty if the library does not tell."""
    if found := _CERTIFICATE.search(text):
        what = found[1].removesuffix("Context")
        return f"the certificate of the store {_CAUSES.get(what, f'is not accepted: {what}')}"
    found = _CAUSE.search(text)
    told = next(filter(None, found.groups())) if found else ""
    return _CAUSES.get(told, told)


def _authorities() -> bytes | None:
    """The current certificates that are trusted in addition to the system's; None: no others.

    Raises:
        NoStorage: they cannot be read.
    """
    if not (bundle := os.environ.get("AWS_CA_BUNDLE")):
        return None
    try:
        return Path(bundle).read_bytes()
    except OSError as error:
        raise NoStorage(f"AWS_CA_BUNDLE: {bundle} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=64)
def _client(
    url: str, read_timeout: float, authorities: bytes | None, process: int, longest_pause: float
) -> ObjectStore:
    """The client of a store; created once per process, because its threads do not survive a fork.

    Raises:
        NoStorage: other authorities are configured, and their file contains none.
    """
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=read_timeout),
        "timeout": timedelta(seconds=_LONGEST_SECONDS),
    }
    credentials: dict[str, Any] = {}
    if url.startswith("s3:"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        options["allow_http"] = endpoint.startswith("http://")
        if authorities is not None:
            options["root_certificate"] = authorities
        if file := os.environ.get("AWS_SHARED_CREDENTIALS_FILE"):
            credentials["credential_provider"] = _FileCredentials(
                Path(file), os.environ.get("AWS_PROFILE") or "default"
            )
    pauses = {"init_backoff": timedelta(seconds=_FIRST_PAUSE), "max_backoff": timedelta(seconds=longest_pause)}
    retries = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=read_timeout), "backoff": pauses}
    try:
        store: ObjectStore = cast("Any", from_url)(url, client_options=options, retry_config=retries, **credentials)
    except (BaseError, ValueError) as error:
        if authorities is None or "certificate" not in str(error).lower():
            raise
        raise NoStorage(f"AWS_CA_BUNDLE: {os.environ['AWS_CA_BUNDLE']} holds no certificates") from None
    return store


def forget_clients() -> None:
    """Forget the clients of this process: the next requests read the settings of the environment anew."""
    _client.cache_clear()


@dataclass(frozen=True, slots=True)
class _FileCredentials:
    """Credentials from a file in AWS's format, which may be replaced at any time."""

    file: Path
    profile: str

    def __call__(self) -> Any:
        """The current content."""
        known = configparser.ConfigParser(interpolation=None)
        try:
            known.read_string(self.file.read_text("utf-8"))
            section = known[self.profile]
            key, secret = section["aws_access_key_id"], section["aws_secret_access_key"]
        except (OSError, KeyError, ValueError, configparser.Error) as error:
            what = error.strerror if isinstance(error, OSError) else f"holds no credentials of {self.profile}"
            raise OSError(f"{self.file}: {what}") from None  # without any of its content
        return {
            "access_key_id": key,
            "secret_access_key": secret,
            "token": section.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + timedelta(seconds=_CREDENTIALS_SECONDS),
        }


class _Begun(threading.local):
    """The puts that a thread has begun.

    Attributes:
        puts: by storage; their futures raise what has failed.
    """

    def __init__(self) -> None:
        self.puts: dict[ObjectStorage, list[Future[None]]] = {}


_begun, _free = _Begun(), threading.BoundedSemaphore(PUTS_AT_ONCE)


def _put_at_once(
    put: Callable[..., None], files: Mapping[str, Sequence[bytes | memoryview]]
) -> dict[str, BaseException]:
    """Put files concurrently, as many at a time as allowed; returns the errors of those that failed."""

    def put_one(name: str) -> None:
        try:
            put(name, *files[name])
        finally:
            _free.release()

    puts = dict[str, Future[None]]()
    for name in files:
        _free.acquire()
        puts[name] = called(partial(put_one, name))
    return {name: error for name, each in puts.items() if (error := each.exception()) is not None}


class _Set:
    """See :meth:`~spatialstream.connectors.contracts.Storage.put_set`.

    Attributes:
        trouble: see :class:`~spatialstream.connectors.contracts.Puts`.
    """

    def __init__(self, storage: ObjectStorage, files: Sequence[File], seal: File, after: Puts | None) -> None:
        self._storage, self._there = storage, threading.Event()
        self.trouble: BaseException | None = None
        threading.Thread(target=self._run, args=(dict(files), dict([seal]), after), name="set", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """See :class:`~spatialstream.connectors.contracts.Puts`."""
        return self._there.wait(seconds)

    def _run(
        self,
        files: Mapping[str, Sequence[bytes | memoryview]],
        seal: Mapping[str, Sequence[bytes | memoryview]],
        after: Puts | None,
    ) -> None:
        self._put(files)
        while after is not None and not after.wait(self._storage.limits.longest_pause):
            self.trouble = after.trouble
        self._put(seal)
        self._there.set()

    def _put(self, files: Mapping[str, Sequence[bytes | memoryview]]) -> None:
        pause = _FIRST_PAUSE
        while failed := _put_at_once(self._storage.put, files):
            self.trouble = next(iter(failed.values()))
            files = {name: files[name] for name in failed}
            time.sleep(pause)
            pause = min(2 * pause, self._storage.limits.longest_pause)
        self.trouble = None


class _Later:
    """Deferred puts and deletes, in threads of their own; failures are retried.

    Args:
        storage: where to put and delete.
    """

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._changed = threading.Condition()
        self._todo: dict[str, bytes | None] = {}
        self._doing: dict[str, bytes | None] = {}
        threading.Thread(target=self._run, name="later", daemon=True).start()
        atexit.register(self.wait, _AT_EXIT_SECONDS)

    def add(self, files: Mapping[str, bytes | None]) -> None:
        """Have files put, or deleted if they have no content; waits for room.

        Raises:
            NoStorage: there is no room for longer than the storage's patience.
        """
        with self._changed:
            has_room = not any(files.values()) or self._changed.wait_for(self._has_room, self._storage.patience)
            if not has_room:
                raise NoStorage(f"{self._storage.url} did not accept the uploads in time")
            for name, data in files.items():
                self._todo.pop(name, None)
                self._todo[name] = data
            self._changed.notify_all()

    def _has_room(self) -> bool:
        waiting = sum(len(data or b"") for files in (self._todo, self._doing) for data in files.values())
        return waiting < self._storage.limits.later_bytes

    def get(self, name: str) -> bytes | None:
        """The content that is still to be put for a file; None if there is none."""
        with self._changed:
            return self._todo[name] if name in self._todo else self._doing.get(name)

    def forget(self, names: Sequence[str]) -> None:
        """Cancel the deferred operations on these files; none of them is in progress when this returns."""
        with self._changed:
            self._changed.wait_for(lambda: self._doing.keys().isdisjoint(names))
            for name in names:  # after the wait: a failure meanwhile has scheduled a retry
                self._todo.pop(name, None)

    def wait(self, timeout: float) -> bool:
        """Wait until all is done, with a timeout in seconds; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._todo and not self._doing, timeout)

    def _put(self, files: Mapping[str, Sequence[bytes]]) -> Iterable[str]:
        """Put files; returns those that failed."""
        failed = _put_at_once(self._storage.put_now, files)
        for error in failed.values():
            if not isinstance(error, NoStorage | OSError):
                raise error
        return failed

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._todo)
                files = self._doing = self._todo
                self._todo = {}
            puts = {name: [data] for name, data in files.items() if data is not None}
            failed = {name: files[name] for name in self._put(puts)}
            gone = [name for name, data in files.items() if data is None]
            try:
                self._storage.delete_now(gone)
            except (NoStorage, OSError):
                failed |= dict.fromkeys(gone)
            with self._changed:
                self._doing = {}
                self._todo = failed | self._todo
                self._changed.notify_all()
            if failed:
                time.sleep(self._storage.limits.longest_pause)


@lru_cache(maxsize=8)
def _later(storage: ObjectStorage, process: int) -> _Later:
    return _Later(storage)
