"""Apache Kafka's jars, fetched once by Maven into a cache folder outside the sources."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from room_common.errors import ConfigurationError
from room_local.parts.processes import PartFailed

VERSION = "4.4.0"
_POM = Path(__file__).with_name("kafka-pom.xml")
_OLDEST_JAVA = 17


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``ROOM_CACHE``, else ``~/.cache/room``: what is fetched once for all checkouts."""
    return Path(environment.get("ROOM_CACHE") or Path.home() / ".cache" / "room").expanduser().absolute()


def java_program(environment: Mapping[str, str] = os.environ) -> str | None:
    """A Java that can run the broker, from JAVA_HOME or PATH; None when there is none or it is older than 17."""
    home = environment.get("JAVA_HOME")
    for candidate in ([str(Path(home) / "bin" / "java")] if home else []) + ["java"]:
        program = shutil.which(candidate, path=environment.get("PATH"))
        if program is not None and _java_release(program) >= _OLDEST_JAVA:
            return program
    return None


def available(environment: Mapping[str, str] = os.environ) -> str | None:
    """None when Apache Kafka can run here, else what is missing."""
    if java_program(environment) is None:
        return f"no Java {_OLDEST_JAVA} or later was found"
    if shutil.which("mvn", path=environment.get("PATH")) is None and not _jars(cache_folder(environment)).is_dir():
        return "mvn was not found, and the jars of Apache Kafka are not in the cache"
    return None


def fetch_jars(note: Callable[[str], None] = lambda message: None) -> Path:
    """The folder with the jars; the first call downloads about 43 MB.

    Raises :class:`ConfigurationError` when Maven is missing and :class:`PartFailed` when it fails.
    """
    cache = cache_folder()
    jars = _jars(cache)
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigurationError("Apache Kafka needs Maven once, to fetch its jars: install maven")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            note(f"fetching Apache Kafka {VERSION} into {jars} (once)")
            _download(maven, cache, jars)
    return jars


def _download(maven: str, cache: Path, jars: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as work:
        folder = Path(work) / "jars"
        try:
            subprocess.run(
                [
                    maven,
                    "--quiet",
                    "--batch-mode",
                    "--file",
                    str(_POM),
                    f"-Dkafka.version={VERSION}",
                    f"-DoutputDirectory={folder}",
                    "dependency:copy-dependencies",
                ],
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=900,
                cwd=work,
            )
        except subprocess.CalledProcessError as error:
            raise PartFailed(f"Maven could not fetch Apache Kafka:\n{error.stdout.decode()[-2000:]}") from None
        except subprocess.TimeoutExpired:
            raise PartFailed("Maven took more than 15 min to fetch Apache Kafka") from None
        folder.rename(jars)


def _jars(cache: Path) -> Path:
    return cache / f"kafka-{VERSION}"


def _java_release(program: str) -> int:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(rb'version "(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0
