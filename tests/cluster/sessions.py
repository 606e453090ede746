"""How the tests end somebody's session in ZooKeeper."""

from __future__ import annotations

import time

from kazoo.client import KazooClient

from spatialstream.servers.process import await_condition
from spatialstream.servers.zookeeper import ZooKeeperServer

__all__ = ["end_session"]

_AGAIN = 1.0


def end_session(server: ZooKeeperServer, client: KazooClient) -> None:
    """End a client's session, as the servers do when they have not heard of it for too long.

    Whoever continues a session can also end it, unless the client, which tries to come back all the while, has taken it
    over again: then the end is not heeded. So it is ended until the client has another one.
    """
    session = client.client_id

    def ended() -> bool:
        thief = KazooClient(server.hosts, client_id=session)
        thief.start()
        thief.stop()
        thief.close()
        again = time.monotonic() + _AGAIN
        while client.client_id in (None, session):
            if time.monotonic() > again:
                return False
            time.sleep(0.01)
        return True

    assert await_condition(ended, 30.0), "a session that was ended goes on"
