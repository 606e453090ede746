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


def note(text):
    """Write down what has become of who follows, a line each: others look there."""
    with Path("/tmp/following").open("a") as file:
        file.write(f"{text}\n")


def follow(url, token, path, last_object):
    """Rows, and on how many connections they came; /tmp/following says so far what became of these."""
    rows, last, connections = [], None, 0
    while True:
        resume = {} if last is None else {"Last-Event-ID": last}
        try:
            _, answer = connected(url, token, "GET", path, None, Accept="text/event-stream", **resume)
            if answer.status != 200:
                raise OSError(answer.status, answer.read().decode())
            connections += 1
            note("connected")
            of_event, data = last, None
            while (line := answer.readline()).endswith(b"\n"):  # what a lost connection has cut off is no line
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    of_event = value
                elif name == "data":
                    data = json.loads(value)
                elif not name and data is not None:  # whole: what is not has not come
                    last = of_event
                    rows.append(data)
                    if data["object"]["id"].startswith(last_object):
                        note("has the last row")
                        return {"rows": rows, "connections": connections}
                    data = None
            note("ended")
        except (OSError, http.client.HTTPException) as error:
            note(f"{type(error).__name__}: {error} (after {last})")
            time.sleep(0.5)


if __name__ == "__main__":
    where, bearer, what, path, *rest = sys.argv[1:]
    body = sys.stdin.buffer.read()
    done = follow(where, bearer, path, *rest) if what == "follow" else request(where, bearer, what, path, body)
    print(json.dumps(done))
