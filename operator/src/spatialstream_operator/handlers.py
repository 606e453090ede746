"""The Kopf handlers: which resources to watch, and how to handle their events.

Kopf watches, manages the finalizer, and runs one daemon per resource: its reconciliation loop. No decisions are made
here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import kopf

from spatialstream_operator.areas import AreaController, remove_area
from spatialstream_operator.cluster import ClusterError, Object
from spatialstream_operator.controller import Controller
from spatialstream_operator.environment import Environment
from spatialstream_operator.loop import Loop
from spatialstream_operator.names import AREA_KIND, AREA_PLURAL, GROUP, KIND, PLURAL, QUERY_KIND, QUERY_PLURAL, VERSION
from spatialstream_operator.queries import QueryController, remove_query
from spatialstream_operator.steps.removing import remove
from spatialstream_operator.watch import Watch

__all__ = ["AREAS", "FINALIZER", "QUERIES", "STREAMS", "Handlers", "ResourceKind", "settings"]

_log = logging.getLogger(__name__)

FINALIZER = f"{GROUP}/cleanup"

_REMOVE_EVERY = 2.0
_ENDING = 30.0
"""Seconds that a reconciliation may take to end after its resource was deleted: as long as a request to the gateway."""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource that the operator manages.

    Attributes:
        kind: its kind.
        plural: its plural name, as in API paths.
        controller: creates the loop of a resource from its namespace and name.
        remove: continues the removal of a resource; True when nothing is left to do.
        leave: releases what is held for the resources of a namespace (None: of all namespaces).
    """

    kind: str
    plural: str
    controller: Callable[[Environment, str, str], Loop]
    remove: Callable[[Environment, Object], Awaitable[bool]]
    leave: Callable[[Environment, str | None], Awaitable[None]]


async def _leave_streams(environment: Environment, namespace: str | None) -> None:
    await environment.stores.leave(namespace)
    environment.metrics.leave(namespace)


async def _leave_areas(environment: Environment, namespace: str | None) -> None:
    environment.metrics.leave_areas(namespace)


async def _leave_queries(environment: Environment, namespace: str | None) -> None:
    environment.metrics.leave_queries(namespace)


STREAMS = ResourceKind(KIND, PLURAL, Controller, remove, _leave_streams)
AREAS = ResourceKind(AREA_KIND, AREA_PLURAL, AreaController, remove_area, _leave_areas)
QUERIES = ResourceKind(QUERY_KIND, QUERY_PLURAL, QueryController, remove_query, _leave_queries)


@dataclass(slots=True)
class Handlers:
    """Connects Kopf with the controllers.

    Attributes:
        environment: shared clients and settings.
        watch: records what the watch delivers.
        resource: the kind of resource.
        controllers: the loops of the resources that are looked after, by uid.
    """

    environment: Environment
    watch: Watch
    resource: ResourceKind = STREAMS
    controllers: dict[str, Loop] = field(default_factory=dict, init=False)
    _wishes: dict[str, Any] = field(default_factory=dict)
    _stuck: dict[str, str] = field(default_factory=dict)

    def registry(self) -> kopf.OperatorRegistry:
        """The handlers as a Kopf registry."""
        registry = kopf.OperatorRegistry()
        resource = GROUP, VERSION, self.resource.plural
        kopf.on.login(registry=registry)(_log_in)
        kopf.on.event(*resource, registry=registry)(self.seen)
        daemon: Any = self.look_after
        kopf.daemon(*resource, registry=registry, cancellation_timeout=10.0)(daemon)
        kopf.on.delete(*resource, registry=registry)(self.remove)
        return registry

    async def seen(self, type: str | None, body: kopf.Body, uid: str, **_: Any) -> None:
        """Handle a watch event; wakes the controller if spec, annotations or deletion have changed."""
        record: Object = dict(body)
        self.watch.show(record, deleted=type == "DELETED")
        metadata = record["metadata"]
        wishes = metadata.get("generation"), metadata.get("annotations"), metadata.get("deletionTimestamp")
        if type == "DELETED":
            self._wishes.pop(uid, None)
        elif self._wishes.get(uid) != wishes:
            self._wishes[uid] = wishes
            if uid in self.controllers:
                self.controllers[uid].wake()

    async def look_after(self, stopped: Any, namespace: str, name: str, uid: str, **_: Any) -> None:
        """Run the controller of a resource until it is stopped.

        A deleted resource's reconciliation is not interrupted, because what it has sent would still be processed:
        perhaps after the removal, which would leave it behind forever. An operator that exits interrupts it, because
        the next one reads in the status what was sent.
        """
        controller = self.resource.controller(self.environment, namespace, name)
        self.controllers[uid] = controller
        running = asyncio.create_task(controller.run())
        stopping = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.reason is not None and kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped.reason:
                controller.stop()
                await asyncio.wait({running})
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.wait({running})
            self.controllers.pop(uid, None)
        if running.done() and not running.cancelled() and (error := running.exception()):
            raise error

    async def remove(self, body: kopf.Body, **_: Any) -> None:
        """Remove a resource; Kopf retries until it is done. A changed reason for a delay is logged."""
        await self._remove(body["metadata"])

    async def remove_without_kopf(self, namespace: str | None) -> None:
        """Continue the removal of all resources of a namespace (None: of all namespaces) that are being deleted.

        Kopf does not serve a kind whose objects cannot be patched according to API discovery. That is so while the
        custom resource definition is being deleted; then all resources are being deleted too, and their finalizers
        block the definition.
        """
        for record in await self.environment.cluster.list(self.resource.kind, namespace):
            self.watch.show(record)
            if FINALIZER in record["metadata"].get("finalizers", []) and "deletionTimestamp" in record["metadata"]:
                with suppress(kopf.TemporaryError):
                    await self._remove(record["metadata"])
                    await self.environment.cluster.release(record, FINALIZER)

    async def _remove(self, metadata: Mapping[str, Any]) -> None:
        uid, problem = metadata["uid"], ""
        if uid in self.controllers:
            raise kopf.TemporaryError("a reconciliation of it is under way", _REMOVE_EVERY)
        try:
            record = await self.environment.cluster.get(self.resource.kind, metadata["name"], metadata["namespace"])
            removed = record is None or await self.resource.remove(self.environment, record)
        except ClusterError as error:
            removed, problem = False, str(error)
        if problem and problem != self._stuck.get(uid):
            _log.warning("%s/%s: removal is blocked: %s", metadata["namespace"], metadata["name"], problem)
        self._stuck[uid] = problem
        if not removed:
            raise kopf.TemporaryError(problem or "its external state is being removed", _REMOVE_EVERY)
        del self._stuck[uid]


def _log_in(**given: Any) -> Any:
    """Log in with the pod's service account, or else the user's kubeconfig."""
    return kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)


def settings() -> kopf.OperatorSettings:
    """Kopf's settings; its only visible traces on resources are the finalizer and one annotation."""
    kopf_settings = kopf.OperatorSettings()
    # the resource is known; and with scanning Kopf would stop serving a kind whose definition is being deleted
    kopf_settings.scanning.disabled = True
    kopf_settings.process.ultimate_exiting_timeout = (
        None  # otherwise it would kill the process, which other instances of Kopf share
    )
    kopf_settings.persistence.finalizer = FINALIZER
    kopf_settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    # no handler needs the difference between specs, and one with a polygon has no room in an annotation (256 KiB)
    kopf_settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=GROUP, key="seen", ignored_fields=["spec"]
    )
    kopf_settings.posting.enabled = False
    kopf_settings.background.instant_exit_timeout = _ENDING  # otherwise a daemon is cancelled at once
    kopf_settings.watching.server_timeout = 300
    kopf_settings.watching.client_timeout = 330
    kopf_settings.watching.connect_timeout = 30
    kopf_settings.networking.request_timeout = 60
    return kopf_settings
