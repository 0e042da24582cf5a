"""`python -m bench core|peers|http|communicator`: run a benchmark and print what it measured."""

from __future__ import annotations

import argparse
import json
import sys

from bench import communicator, core, http
from bench.peers import command as peers


def main() -> int:
    """Run the benchmark that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    core_parser = commands.add_parser("core", help="the core and its storage, without sockets")
    core_parser.add_argument(
        "--json", action="store_true", help="print one JSON object and no more"
    )
    core_parser.add_argument("--quick", action="store_true", help="a tenth of the tasks")
    core_parser.add_argument("--profile", action="store_true", help="where the time of a life goes")
    peers.add_arguments(commands.add_parser("peers", help="Jackalope beside other task queues"))
    http.add_arguments(commands.add_parser("http", help="requests over HTTP while tasks flow"))
    communicator.add_arguments(
        commands.add_parser("communicator", help="kiwipy over Jackalope and over RabbitMQ")
    )
    args = parser.parse_args()
    if args.command is None:
        args = parser.parse_args(["core"])
    if args.command == "peers":
        return peers.run(args)
    if args.command == "http":
        return http.run(args)
    if args.command == "communicator":
        return communicator.run(args)
    if args.profile:
        core.profile()
        return 0
    figures = core.measure(is_quick=args.quick, say=not args.json)
    print(json.dumps(figures) if args.json else core.table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
