"""``room up``, ``down``, ``status`` and ``logs``: the whole of Room on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from room_cli.failures import FAILED, UNREACHABLE, WRONG_INPUT
from room_cli.options import AsJson, Directory
from room_cli.output import print_json
from room_common.errors import ConfigurationError, RoomError
from room_common.settings import check_public_url
from room_local.events import Event
from room_local.files import StackFiles
from room_local.logs import logs as read_logs
from room_local.options import StackOptions
from room_local.parts.processes import tail
from room_local.status import ProcessStatus, StackStatus, take_down
from room_local.status import status as read_status

_MIB = 1 << 20
PROGRAM = "room_cli"
_DETACHED_SECONDS = 1200.0
_STOP_SECONDS = 300.0
_STYLES = {"ready": "green", "restarting": "red", "warning": "yellow", "note": "cyan", "stopped": "green"}

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


class Kafka(StrEnum):
    """The brokers that ``room up`` can start."""

    embedded = "embedded"
    apache = "apache"


KafkaOption = Annotated[
    Kafka,
    typer.Option(help="embedded: in memory, nothing to install. apache: Apache Kafka itself, needs Java 17 and Maven."),
]
BrokerMemory = Annotated[
    int, typer.Option(metavar="MIB", min=64, help="Memory at which the embedded broker is restarted and forgets all.")
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return when everything is ready; stop with `room down`.")]
TickSeconds = Annotated[
    float | None, typer.Option(min=0.5, help="Seconds between two ticks, instead of the scheduler's default.")
]
PublicUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where senders reach this Room, through a tunnel or proxy: http(s)://host[:port]."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")]
Last = Annotated[int, typer.Option("--last", "-n", min=0, help="Lines to begin with, of each log.")]


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(logs)


def up(
    directory: Directory = Path(),
    kafka: KafkaOption = Kafka.embedded,
    broker_memory: BrokerMemory = 1024,
    ingest_port: Annotated[int, typer.Option(help="Port for webhooks; a free one if it is taken or 0.")] = 8080,
    operations_port: Annotated[int, typer.Option(help="Ingest's port for /readyz and /metrics.")] = 8081,
    admin_port: Annotated[int, typer.Option(help="Port of the API and the panel.")] = 8090,
    public_url: PublicUrl = None,
    tick_seconds: TickSeconds = None,
    detach: Detach = False,
) -> None:
    """Start everything on this machine: database, cache, broker and all services. Ctrl-C stops it."""
    options = StackOptions(
        kafka=kafka.value,
        broker_memory_limit=broker_memory * _MIB,
        ingest_port=ingest_port,
        operations_port=operations_port,
        admin_port=admin_port,
        public_url=_checked(public_url),
        tick_seconds=tick_seconds,
    )
    if detach:
        _detach(directory, options)
    else:
        _foreground(directory, options)


def down(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Stop everything that `room up` started here, also after a crash. Data stays."""
    ended = take_down(directory)
    if as_json:
        print_json({"stopped": ended})
        return
    console.print(f"stopped: {', '.join(ended)}" if ended else "nothing was running", markup=False)
    _tell_of_data(directory)


def status(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Show what runs: addresses, processes, memory. Exit 3 when the stack does not run."""
    found = read_status(directory)
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)
    if found.state != "running":
        raise typer.Exit(UNREACHABLE)


def logs(
    service: Annotated[str | None, typer.Argument(help="One service or part; all of them when left out.")] = None,
    directory: Directory = Path(),
    follow: Follow = False,
    last: Last = 40,
) -> None:
    """Print the logs of the stack."""
    with _failures_explained():
        try:
            for name, line in read_logs(directory, service, follow=follow, last=last):
                prefix = f"{name:<12} " if service is None else ""
                sys.stdout.write(f"{prefix}{line}\n")
                if follow:
                    sys.stdout.flush()
        except (KeyboardInterrupt, BrokenPipeError):
            sys.stderr.close()


def _foreground(directory: Path, options: StackOptions) -> None:
    # Late: it loads the clients of everything, which other commands need not wait for.
    from room_local.stack import Stack

    stack = Stack(directory, options, print_event)
    with _failures_explained(), stopping_signals():
        try:
            stack.up()
            console.print()
            _show(read_status(directory))
            console.print("Ctrl-C stops everything.")
            stack.wait()
        except KeyboardInterrupt:
            pass
        finally:
            stack.down()
            _tell_of_data(directory)


def _tell_of_data(directory: Path) -> None:
    root = StackFiles(directory).root
    if root.exists():
        console.print(f"the data stays in {root}; delete that folder to begin anew", markup=False, soft_wrap=True)


def _detach(directory: Path, options: StackOptions) -> None:
    files = StackFiles(directory)
    with _failures_explained():
        files.prepare()
        if read_status(directory).state in ("running", "starting"):
            raise ConfigurationError("a stack already runs here: see it with `room status`")
        log = files.log("stack")
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            child = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", PROGRAM, "up", *_arguments(directory, options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _await_detached(child, directory, log, before)
    _show(read_status(directory))
    console.print("It runs in the background: `room logs -f`, `room down`.", markup=False)


def _await_detached(child: subprocess.Popen[bytes], directory: Path, log: Path, before: int) -> None:
    deadline = time.monotonic() + _DETACHED_SECONDS
    try:
        with console.status("starting"):
            while time.monotonic() < deadline:
                found = read_status(directory)
                if found.state == "running" and found.supervisor_pid == child.pid:
                    return
                if child.poll() is not None:
                    raise RoomError(f"the stack did not start (log: {log}):\n{tail(log, 12, since=before)}")
                time.sleep(0.2)
    except KeyboardInterrupt:
        child.terminate()
        child.wait(_STOP_SECONDS)
        raise typer.Exit(130) from None
    child.terminate()
    raise RoomError(f"the stack was not ready within {_DETACHED_SECONDS:.0f} s (log: {log})")


def _arguments(directory: Path, options: StackOptions) -> list[str]:
    arguments = [
        f"--directory={directory}",
        f"--kafka={options.kafka}",
        f"--broker-memory={options.broker_memory_limit // _MIB}",
        f"--ingest-port={options.ingest_port}",
        f"--operations-port={options.operations_port}",
        f"--admin-port={options.admin_port}",
    ]
    if options.public_url is not None:
        arguments.append(f"--public-url={options.public_url}")
    return arguments if options.tick_seconds is None else [*arguments, f"--tick-seconds={options.tick_seconds}"]


def _checked(public_url: str | None) -> str | None:
    """The address without a slash at its end; services would refuse a wrong one, each by itself and later."""
    if public_url is None:
        return None
    try:
        return check_public_url(public_url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--public-url") from None


def print_event(event: Event) -> None:
    """Show one happening as a line."""
    line = Text(f"{event.subject:<12} ", style="bold")
    line.append(f"{event.kind:<10} ", style=_STYLES.get(event.kind, "dim"))
    line.append(event.message if event.message != event.kind else "")
    console.print(line, soft_wrap=True)


@contextmanager
def _failures_explained() -> Iterator[None]:
    """Turn expected errors into a message and an exit code: 2 for what the person can set right, else 1."""
    try:
        yield
    except RoomError as error:
        errors.print(f"room: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(WRONG_INPUT if isinstance(error, ConfigurationError) else FAILED) from None


@contextmanager
def stopping_signals() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; further ones are ignored while we stop."""
    seen = False

    def handle(number: int, frame: object) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(found: StackStatus) -> None:
    if not found.processes:
        errors.print("no stack has been started here: `room up` starts one", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("pid", "memory", "restarts"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("address", overflow="fold")
    for one in found.processes:
        table.add_row(
            one.name,
            Text(_state(one), style="green" if one.ready is not False and one.pid else "red"),
            str(one.pid or "-"),
            f"{one.memory_bytes >> 20} MiB" if one.memory_bytes is not None else "-",
            str(one.restarts or "-"),
            _address(one),
        )
    console.print(table)
    console.print(f"stack: {found.state}, Kafka: {found.kafka}, model: {found.model}", markup=False, soft_wrap=True)
    if found.reason:
        console.print(found.reason, markup=False, soft_wrap=True)
    if found.state == "abandoned":
        console.print("its supervisor is gone: `room down` stops the rest", markup=False)
    if found.broker_memory_limit_bytes is not None and found.state == "running":
        limit = found.broker_memory_limit_bytes >> 20
        console.print(
            f"the embedded broker is restarted at {limit} MiB and forgets its records then",
            markup=False,
            soft_wrap=True,
        )
    if "admin" in found.urls:
        console.print(
            f"panel: {found.urls['admin']}/panel/ (sign in with the operator token)", markup=False, soft_wrap=True
        )
    if found.environment_file:
        console.print(
            f"operator token: {found.token_file}; settings for a shell: . {found.environment_file}",
            markup=False,
            soft_wrap=True,
        )


def _address(process: ProcessStatus) -> str:
    if process.url is None:
        return "-"
    # The sockets' full names are long, and in .room/env where they are needed.
    return "unix socket" if process.url.startswith(("unix:", "postgresql:")) else process.url


def _state(process: ProcessStatus) -> str:
    if process.pid is not None and process.ready is False and process.state == "ready":
        return "not ready"
    return process.state
