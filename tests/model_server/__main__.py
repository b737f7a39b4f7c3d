"""`python -m tests.model_server --port 0 --record FILE`: prints the port it listens on, then serves."""

import argparse
import socket
from pathlib import Path

import uvicorn

from tests.model_server.app import ModelServer


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="model_server", description="A scripted stand-in for a language model."
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", options.port))
    print(listener.getsockname()[1], flush=True)
    app = ModelServer(options.record).app()
    config = uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
