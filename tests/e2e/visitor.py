"""What a program in the cluster does with the gateway; run in a pod, so it has nothing but Python.

visitor.py URL TOKEN METHOD PATH < BODY   a request; prints its status and its answer as JSON
visitor.py URL TOKEN follow PATH LAST     follows results, coming again with the last id whenever the connection is
                                          lost, until an object comes whose id begins with LAST; prints the rows
"""

import http.client
import json
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit


def connected(url, token, method, path, body=None, **more):
    """The connection on which a request has been sent, and the answer that begins."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    kind = "application/json" if path.partition("?")[0].endswith(("/ask", "/queries")) else "application/jsonl"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind, **more}
    connection.request(method, path, body or None, headers)
    return connection, connection.getresponse()


def request(url, token, method, path, body):
    """Status and content of an answer; 0 if there was none."""
    try:
        connection, answer = connected(url, token, method, path, body)
        content = answer.read()
        connection.close()
        return {"status": answer.status, "content": json.loads(content)}
    except (OSError, http.client.HTTPException) as error:
        return {"status": 0, "content": str(error)}


def follow(url, token, path, last_object):
    """Rows, and on how many connections they came; /tmp/connections says how many there have been so far."""
    rows, last, connections = [], None, 0
    while True:
        resume = {} if last is None else {"Last-Event-ID": last}
        try:
            _, answer = connected(url, token, "GET", path, None, Accept="text/event-stream", **resume)
            if answer.status != 200:
                raise OSError(answer.status)
            connections += 1
            Path("/tmp/connections").write_text(str(connections))
            data = None
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    last = value
                elif name == "data":
                    data = json.loads(value)
                elif not name and data is not None:
                    rows.append(data)
                    if data["object"]["id"].startswith(last_object):
                        return {"rows": rows, "connections": connections}
                    data = None
        except (OSError, http.client.HTTPException):
            time.sleep(0.5)


if __name__ == "__main__":
    where, bearer, what, path, *rest = sys.argv[1:]
    body = sys.stdin.buffer.read()
    done = follow(where, bearer, path, *rest) if what == "follow" else request(where, bearer, what, path, body)
    print(json.dumps(done))
