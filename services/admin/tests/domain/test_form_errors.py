from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from room_admin.domain.form_errors import Wrong, last_priority, slug_of, wrong_document, wrong_pointers
from room_common.contracts.room_document import DefinitionDocument, RoomDocument


@given(st.text(max_size=200))
def test_a_slug_is_one_that_a_room_may_have_or_nothing(name: str) -> None:
    slug = slug_of(name)
    if slug:
        RoomDocument.model_validate({"version": 1, "name": "x", "slug": slug})


def test_slugs_of_names() -> None:
    assert slug_of("Città & Co.") == "citta-co"
    assert slug_of("漢字") == ""
    assert len(slug_of("a b" * 100)) <= 63


@given(st.lists(st.integers(0, 1_000_000)))
def test_the_last_priority_is_behind_all_others_as_far_as_there_are_any(priorities: list[int]) -> None:
    found = last_priority([{"priority": one} for one in priorities])
    assert found <= 1_000_000
    assert all(found > one for one in priorities) or found == 1_000_000


def test_errors_of_a_document_stand_at_their_fields() -> None:
    with pytest.raises(ValidationError) as refused:
        DefinitionDocument.model_validate({"name": "", "match": "x", "cooldown_seconds": "soon"})
    found = refused.value.errors(include_url=False, include_input=False, include_context=False)
    wrong = wrong_document([dict(one) for one in found], ("name", "cooldown_seconds"))
    assert wrong == Wrong({"name": "Write something here.", "cooldown_seconds": "Write a whole number."})
    assert wrong.status == 422
    assert Wrong().status == 200
    assert wrong_document([dict(one) for one in found], ()).general == (
        "Write something here.",
        "Write a whole number.",
    )


def test_errors_of_the_api_stand_at_their_fields() -> None:
    places = [("/secrets/0", "begins with space"), ("/name", "is taken"), ("", "verify needs a secret")]
    wrong = wrong_pointers("not valid", places, ("name", "secret"))
    assert wrong.fields == {"secret": "Begins with space.", "name": "Is taken."}
    assert wrong.general == ("Verify needs a secret.",)
    assert wrong_pointers("there is none", [], ("name",)) == Wrong(general=("There is none.",))


@given(
    st.lists(st.tuples(st.text(max_size=20), st.text(min_size=1, max_size=20))),
    st.lists(st.text(max_size=5), max_size=3),
)
def test_no_error_of_the_api_is_lost(places: list[tuple[str, str]], known: list[str]) -> None:
    wrong = wrong_pointers("detail", places, known)
    assert wrong.fields or wrong.general
    assert set(wrong.fields) <= {*known}
