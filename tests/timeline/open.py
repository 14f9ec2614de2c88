# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Opens a timeline in Perfetto's user interface in Chromium, without a network, and takes a picture of it.

    python3 open.py UI TRACE PICTURE < ASKED

UI is the folder of the interface. ASKED is a JSON object: `queries` has SQL for its trace processor by name, `area` begin and end
in nanoseconds of what is shown (all, if it is not there). Prints a JSON object: `answers` has rows by name, in which numbers of 64
bits are texts; `text` is what the page shows in words; or `error` is the reason.
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PAGE = Path(__file__).with_name("page.html")
# Seconds for the interface to load, and for the browser to end afterwards.
PATIENCE, END = 120, 60


def serve(ui, trace, asked, answer, done):
    class Handler(http.server.SimpleHTTPRequestHandler):
        files = {"/": PAGE, "/trace": Path(trace).resolve()}

        def translate_path(self, path):
            path = path.partition("?")[0]
            if path.startswith("/ui/"):
                return super().translate_path(path.removeprefix("/ui"))
            return str(self.files.get(path, "/nonexistent"))

        def guess_type(self, path):
            return "text/html" if path == str(PAGE) else super().guess_type(path)

        def do_GET(self):
            if self.path == "/done":
                done.wait(PATIENCE)
                self.send_error(404)
            elif self.path == "/asked":
                body = json.dumps(asked).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            else:
                super().do_GET()

        def do_POST(self):
            answer.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *request: Handler(*request, directory=ui))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def main(ui, trace, picture):
    answer, done = [], threading.Event()
    port = serve(ui, trace, json.load(sys.stdin), answer, done)
    with tempfile.TemporaryDirectory() as home:
        command = ["chromium", "--headless=new", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={home}",
                   "--window-size=1600,900", f"--timeout={PATIENCE * 1000}", f"--screenshot={Path(picture).resolve()}"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        command.append(f"http://127.0.0.1:{port}/")
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE + END,
                               env={**os.environ, "HOME": home})
    if ended.returncode != 0 or not answer:
        sys.exit(f"{ended.stdout.decode(errors='replace')}\nThe page has not answered; Chromium's status is {ended.returncode}.")
    print(answer[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
