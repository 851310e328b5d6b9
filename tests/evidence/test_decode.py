"""Reading untrusted JSON: every field present, of its declared type, and no other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.errors import BadInput
from groundspeed.evidence.decode import MAX_DEPTH, MAX_INT, decode, parse_json


@dataclass(frozen=True)
class Inner:
    number: int


@dataclass(frozen=True)
class Outer:
    text: str
    number: int
    real: float
    mark: bool
    maybe: float | None
    choice: Literal["a", "b"]
    scalar: str | int | float | bool
    items: tuple[int, ...]
    table: dict[str, float]
    inner: Inner
    inners: tuple[Inner, ...]
    anything: dict[str, Any]

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("number is not negative")


GOOD: dict[str, Any] = {
    "text": "x",
    "number": 3,
    "real": 0.5,
    "mark": True,
    "maybe": None,
    "choice": "a",
    "scalar": 1,
    "items": [1, 2],
    "table": {"k": 1.0},
    "inner": {"number": 1},
    "inners": [{"number": 1}, {"number": 2}],
    "anything": {"a": [None, {"b": 1e9}]},
}


def refused(value: Any, *said: str) -> None:
    with pytest.raises(BadInput) as failure:
        decode(Outer, value, "file")
    for words in said:
        assert words in str(failure.value)


class TestDecode:
    def test_good(self) -> None:
        made = decode(Outer, GOOD, "file")
        assert made.items == (1, 2)
        assert made.inners == (Inner(1), Inner(2))
        assert made.anything == GOOD["anything"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *(("text", value) for value in (None, 1, 1.5, True, [], {})),
            *(("number", value) for value in (None, "1", 1.0, 1.5, True, [1], {}, MAX_INT + 1, -MAX_INT - 1)),
            *(("real", value) for value in (None, "1.0", True, [0.5], {}, MAX_INT + 1, float("nan"), float("-inf"))),
            *(("mark", value) for value in (None, 0, 1, "true", [])),
            *(("maybe", value) for value in ("", True, [], {}, float("inf"))),
            *(("choice", value) for value in (None, "c", "A", 0, True, ["a"], {"a": 1})),
            *(("scalar", value) for value in (None, [], {}, 2**70, float("nan"))),
            *(("items", value) for value in (None, "12", 1, {"0": 1}, [1, "2"], [1.0], [True], [[1]])),
            *(("table", value) for value in (None, [], "x", {"k": "1"}, {"k": None}, {"k": [1.0]})),
            *(("inner", value) for value in (None, [], 1, {}, {"number": "1"}, {"number": 1, "more": 2})),
            *(("inners", value) for value in (None, {}, [1], [{}], [{"number": 1}, None])),
            *(("anything", value) for value in (None, [], 1, "x")),
        ],
    )
    def test_every_wrong_type_is_named(self, key: str, value: Any) -> None:
        refused({**GOOD, key: value}, f"file.{key}")

    def test_an_integer_is_a_real_number(self) -> None:
        made = decode(Outer, {**GOOD, "real": 2, "maybe": 3}, "file")
        assert (made.real, made.maybe) == (2.0, 3.0)
        assert isinstance(made.real, float)

    @pytest.mark.parametrize("value", ["x", 7, -0.5, True, False])
    def test_a_scalar_keeps_its_type(self, value: str | int | float | bool) -> None:
        made = decode(Outer, {**GOOD, "scalar": value}, "file")
        assert made.scalar == value
        assert type(made.scalar) is type(value)

    @pytest.mark.parametrize("key", GOOD)
    def test_every_missing_key_is_named(self, key: str) -> None:
        refused({k: v for k, v in GOOD.items() if k != key}, f"key '{key}' is missing")

    def test_an_unknown_key_is_named(self) -> None:
        refused({**GOOD, "colour": "red"}, "unknown key 'colour'")
        refused({**GOOD, "inner": {"number": 1, "colour": "red"}}, "file.inner: unknown key 'colour'")

    def test_the_place_inside_a_list_is_named(self) -> None:
        refused({**GOOD, "inners": [{"number": 1}, {"number": "x"}]}, "file.inners[1].number: expected int, found 'x'")

    def test_what_the_class_refuses_is_bad_input(self) -> None:
        refused({**GOOD, "number": -1}, "file: number is not negative")

    @pytest.mark.parametrize("value", [None, [], "x", 1, 1.5, True])
    def test_not_an_object(self, value: Any) -> None:
        refused(value, "file: expected an object")

    def test_a_huge_value_does_not_make_a_huge_message(self) -> None:
        long = "x" * 1_000_000
        for change in ({"number": long}, {"choice": long}, {long: 1}, {"table": {long: long}}):
            with pytest.raises(BadInput) as failure:
                decode(Outer, {**GOOD, **change}, "file")
            assert len(str(failure.value)) < 500


class TestParse:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (b'{"a": NaN}', "NaN"),
            (b"[Infinity]", "Infinity"),
            (b"[-Infinity]", "-Infinity"),
            (b"[1e999]", "too large"),
            (b"[-1e999]", "too large"),
            (b'{"a": 1, "a": 2}', "twice"),
            (b'{"b": {"a": 1, "a": 1}}', "twice"),
            (b"[9223372036854775808]", "too large"),
            (b"[" + b"9" * 5000 + b"]", "integer"),
            (b'["\\ud800"]', "surrogate"),
            (b'{"\\udc00": 1}', "surrogate"),
            (b'["\xff"]', "utf-8"),
            (b'\xef\xbb\xbf{"a": 1}', "BOM"),
            ('{"a": 1}'.encode("utf-16"), "utf-8"),
            (b"", "Expecting value"),
            (b"{", "Expecting"),
            (b"[1,]", "value"),
            (b'{"a": 1} x', "Extra data"),
            (b"\x00", "Expecting value"),
        ],
    )
    def test_what_readers_disagree_on_is_refused(self, text: bytes, said: str) -> None:
        with pytest.raises(BadInput, match="file: not readable as JSON") as failure:
            parse_json(text, "file")
        assert said in str(failure.value)

    @pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 2_000, 100_000])
    @pytest.mark.parametrize("brackets", ["[]", "{}"])
    def test_deep_nesting_is_refused(self, depth: int, brackets: str) -> None:
        opening, closing = ("[", "]") if brackets == "[]" else ('{"a":', "}")
        with pytest.raises(BadInput, match="not readable as JSON"):
            parse_json((opening * depth + "1" + closing * depth).encode(), "file")

    def test_reasonable_nesting_is_not(self) -> None:
        value = parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "file")
        assert isinstance(value, list)

    def test_a_surrogate_pair_is_one_character(self) -> None:
        assert parse_json(b'["\\ud83d\\ude80"]', "file") == ["\N{ROCKET}"]

    plain = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-MAX_INT, MAX_INT)
        | st.floats(allow_nan=False, allow_infinity=False)
        # without halves of surrogate pairs
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
        max_leaves=20,
    )

    @given(plain)
    def test_ordinary_json_is_read_as_it_is(self, value: Any) -> None:
        assert parse_json(json.dumps(value).encode(), "file") == value

    @given(st.binary(max_size=200))
    def test_any_bytes_are_read_or_refused(self, content: bytes) -> None:
        try:
            parse_json(content, "file")
        except BadInput as refusal:
            assert str(refusal).startswith("file: ")  # noqa: PT017 - most examples are refused, some are JSON
