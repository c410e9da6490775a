#!/usr/bin/env python3
"""Stands for the lamina programs in tests of what starts and stops them. Which one it is, the name under which it was started says.

Nodes listen on their port and say nothing. The manager (`lamina serve --cluster FILE`) answers /health and /cluster/status on the file's http_port,
with a node for each "# node NAME at ADDRESS" in the file.
FAKE_FAIL=NAME: the daemon of that name prints a message and ends with status 3.  FAKE_IGNORE_TERM=NAME: it ignores SIGTERM.
"""
import http.server
import json
import os
import re
import signal
import socket
import sys


class Manager(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        serving = "FAKE_FAIL" not in os.environ  # a cluster without one of its nodes does not
        body = b"" if self.path == "/health" else json.dumps({**STATUS, "serving": serving}).encode()
        self.send_response(503 if self.path == "/health" and not serving else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


STATUS = {
    "serving": True,
    "detail": "",
    "nodes": [],
    "scheduler": {"num_running": 2, "num_waiting": 1, "num_preemptions": 4},
}


def node_status(name, address):
    return {"name": name, "role": "memory", "address": address, "state": "ready", "detail": "", "transport": "shm",
            "capacity_tokens": 1000, "used_tokens": 250, "num_sequences": 3}


def main():
    is_manager = os.path.basename(sys.argv[0]) == "lamina"
    name = "manager" if is_manager else sys.argv[sys.argv.index("--name") + 1]
    print(f"{name}: {' '.join(sys.argv[1:])}", flush=True)
    if os.environ.get("FAKE_FAIL") == name:
        print(f"{name} has no wish to live", flush=True)
        sys.exit(3)
    if os.environ.get("FAKE_IGNORE_TERM") == name:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if is_manager:
        with open(sys.argv[sys.argv.index("--cluster") + 1]) as file:
            config = file.read()
        port = int(re.search(r"http_port: (\d+)", config).group(1))
        STATUS["nodes"] = [node_status(*node) for node in re.findall(r"# node (\S+) at (\S+)", config)]
        http.server.HTTPServer(("127.0.0.1", port), Manager).serve_forever()
    port = int(sys.argv[sys.argv.index("--listen") + 1].rsplit(":", 1)[1])
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        listener.accept()[0].close()


main()
