"""A document written as a room file and read again is the same document."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings

from room_cli.room_file import read_room_file
from room_cli.room_file_text import room_file_text
from room_common.contracts.room_document import RoomDocument
from room_testing.room_documents import room_documents

ENVIRON = {
    "A_SECRET": "whsec_aHVudGVyMg==",
    "ANOTHER": "whsec_aHVudGVyMw==",
    "ACCOUNT_SID": "AC" + "0" * 32,
    "AUTH_TOKEN": "hunter2",
    "BOT_TOKEN": "1:hunter2-hunter2",
    "SECRET": "whsec_aHVudGVyMg==",
    "SECRET_TOKEN": "hunter2",
    "SIGNING_SECRET": "hunter2",
}


@settings(deadline=None, max_examples=60)
@given(room_documents())
def test_what_is_written_is_read_again(document: RoomDocument) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a file.txt").write_text("whsec_aHVudGVyMg==")
        file = Path(folder) / "room.yaml"
        file.write_text(room_file_text(document), encoding="utf-8")
        assert read_room_file(file, ENVIRON).document == document


def test_it_is_written_as_a_person_would() -> None:
    document = RoomDocument.model_validate(
        {
            "version": 1,
            "name": "Desk",
            "slug": "desk",
            "mandate": "Watch.\nTell.",
            "sources": [
                {
                    "name": "ci",
                    "type": "github",
                    "secrets": [{"stored": 1}],
                    "definitions": [{"name": "n", "match": "m"}],
                }
            ],
        }
    )
    lines = [line for line in room_file_text(document).splitlines() if not line.startswith("#")]
    assert lines == [
        "version: 1",
        "name: Desk",
        "slug: desk",
        "mandate: |-",
        "  Watch.",
        "  Tell.",
        "sources:",
        "  - name: ci",
        "    type: github",
        "    secrets:",
        "      - stored: 1",
        "    definitions:",
        "      - name: n",
        "        match: m",
    ]
