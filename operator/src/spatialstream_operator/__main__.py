"""``python -m spatialstream_operator``: run the operator until it receives a stop signal or loses its lease."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from prometheus_client import start_http_server

from spatialstream.index.version import prepare
from spatialstream.model.errors import SettingError
from spatialstream.model.secret_rule import SecretRule
from spatialstream_operator.cluster import Cluster, Object
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway
from spatialstream_operator.handlers import AREAS, QUERIES, STREAMS
from spatialstream_operator.health import Health
from spatialstream_operator.kind_watcher import KindWatcher
from spatialstream_operator.lease import Lease, account_of
from spatialstream_operator.logs import set_up_logging
from spatialstream_operator.metrics import OperatorMetrics
from spatialstream_operator.prometheus import PrometheusAccess
from spatialstream_operator.stores import Stores
from spatialstream_operator.watch import Watch

_log = logging.getLogger(__name__)

LEASE = "spatialstream-operator"
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


async def _operate(config: OperatorConfig, cluster: Cluster, leases: Cluster) -> int:
    environment = Environment(
        cluster, Stores(cluster, SecretRule(config.secrets)), config, OperatorMetrics(), gateway=_gateway(config)
    )
    watch = Watch()
    health = Health(watch)
    start_http_server(config.metrics_port, registry=environment.metrics.registry)
    probes = await health.serve(config.health_port)
    lease = Lease(leases, LEASE, config.namespace, config.pod, config.lease, _account())
    stop = asyncio.Event()

    def listen() -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, stop.set)

    listen()
    watchers = [
        KindWatcher(environment, watch, health, each, listen, resource)
        for each in config.namespaces or (None,)
        for resource in (STREAMS, QUERIES, AREAS)
    ]
    try:
        if not await _until(stop, lease.acquire()):
            return 0
        health.ready = True
        return await _work(watchers, lease, stop)
    finally:
        health.ready = False
        await environment.stores.close_all()
        await cluster.close()
        await lease.release()  # last: from now on another operator may act, and this one has no request in flight
        await leases.close()
        await probes.cleanup()


def _account() -> Object | None:
    """The operator's own service account; None outside a cluster."""
    try:
        return account_of(_TOKEN.read_text())
    except OSError:
        return None


def _gateway(config: OperatorConfig) -> Gateway | None:
    if not config.gateway_service:
        return None
    return Gateway(config.gateway_service, config.gateway_token, config.gateway_authority)


async def _work(watchers: Sequence[KindWatcher], lease: Lease, stop: asyncio.Event) -> int:
    """Reconcile resources while the lease is held; return the exit status."""
    lease_task = asyncio.create_task(lease.keep())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.to_thread(prepare)
    working = [asyncio.create_task(watcher.keep()) for watcher in watchers]
    finished, _ = await asyncio.wait({lease_task, stopping, *working}, return_when=asyncio.FIRST_COMPLETED)
    if lease_task in finished:
        _end_at_once()
    for task in (*working, lease_task, stopping):
        task.cancel()
    await asyncio.wait(working)
    for task in finished.intersection(working):
        task.result()  # raises: a watcher only ends by itself because of a bug
    return 0


def _end_at_once() -> NoReturn:
    """Exit without cleanup: another operator may be active, so no thread of this process may continue."""
    _log.error("lost the lease: exiting, because another operator may be active")
    logging.shutdown()
    os._exit(1)


async def _until(stop: asyncio.Event, work: object) -> bool:
    """Wait until the work is done; False if the stop event is set first."""
    working = asyncio.ensure_future(work)  # type: ignore[call-overload]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        await working
        return True
    working.cancel()
    return False


def main() -> int:
    """Run the operator. Exit status: 0 stopped, 1 lost its lease, 2 invalid setting."""
    try:
        config = OperatorConfig.from_environment()
        if config.prometheus_access:
            PrometheusAccess(Path(config.prometheus_access)).check(config.prometheus_url)
    except SettingError as error:
        print(f"spatialstream-operator: {error}", file=sys.stderr)
        return 2
    set_up_logging(config)
    # A separate client renews the lease, so that queued requests never delay it. Two threads: one attempt may still
    # wait for its answer while the next one starts.
    return asyncio.run(_operate(config, Cluster(), Cluster(threads=2)))


if __name__ == "__main__":
    sys.exit(main())
