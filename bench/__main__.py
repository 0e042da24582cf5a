"""`python -m bench NAME`: run a benchmark and print what it measured."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

#: The module of each benchmark, and what it measures. Loaded when it is asked for: each needs
#: packages that the others can do without.
BENCHMARKS = {
    "core": ("bench.core", "the core and its storage, without sockets"),
    "journal": ("bench.journal", "a commit of the journal beside the bare disk"),
    "compare": ("bench.compare", "the working tree beside the last release"),
    "latency": ("bench.latency.command", "one submit and one round trip by stages"),
    "peers": ("bench.peers.command", "Jackalope beside other task queues"),
    "cluster": ("bench.cluster", "three nodes beside one, and beside RabbitMQ's three"),
    "fanout": ("bench.fanout.command", "fan-outs beside pools of processes, Dask and Ray"),
    "flows": ("bench.flows.command", "chains and joins beside Celery's canvas and DBOS"),
    "fairness": (
        "bench.fairness.command",
        "waits of small tenants beside large ones, and Celery's",
    ),
    "limits": ("bench.limits", "an assignment under limits by key, with few keys and with many"),
    "http": ("bench.http", "requests over HTTP while tasks flow"),
    "grpc": ("bench.grpc", "the gRPC door beside the native one and REST"),
    "cost": ("bench.cost", "requests and tasks, in CPU time"),
    "silence": ("bench.silence", "task logs, for a task that prints nothing"),
    "pools": ("bench.pools", "a cold key's first answer beside its worker's own start"),
    "communicator": ("bench.communicator", "kiwipy over Jackalope and over RabbitMQ"),
    "aiida": ("bench.aiida", "an AiiDA daemon over Jackalope and over AiiDA's own brokers"),
    "aims": ("bench.aims.command", "every aim of the speed beside its peers, in one run"),
    "amqp": ("bench.amqp.command", "RabbitMQ's clients over Jackalope and over RabbitMQ"),
}


def main() -> int:
    """Run the benchmark that is asked for."""
    about = "".join(f"\n  {name:14} {what}" for name, (_, what) in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Run a benchmark and print what it measured:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmark", choices=BENCHMARKS, nargs="?", default="core")
    chosen = parser.parse_args(sys.argv[1:2]).benchmark
    module, what = BENCHMARKS[chosen]
    benchmark = import_module(module)
    options = argparse.ArgumentParser(prog=f"python -m bench {chosen}", description=what)
    benchmark.add_arguments(options)
    code: int = benchmark.run(options.parse_args(sys.argv[2:]))
    return code


if __name__ == "__main__":
    sys.exit(main())
