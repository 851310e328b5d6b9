"""Numbers as text: the digits are right, the unit is readable, and a larger number never reads as a smaller one."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groundspeed.report import text

UNITS = {
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0,
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
}  # fmt: skip


def read(said: str) -> float:
    """The value that a reader takes from the text."""
    match = re.fullmatch(r"(-?[\d,]*\.?\d+) ?([A-Za-zµ]*)", said)
    assert match, said
    return float(match[1].replace(",", "")) * UNITS[match[2]]


positive = st.floats(min_value=1e-12, max_value=1e9, allow_nan=False)


@given(positive)
@example(9.995)
@example(0.99951)
@example(999.5)
def test_three_significant_digits_are_right_and_never_in_an_exponent(value: float) -> None:
    said = text.significant(value)
    assert "e" not in said
    assert float(said.replace(",", "")) == pytest.approx(value, rel=5.01e-3)
    digits = said.replace(",", "").replace(".", "").lstrip("0")
    assert len(digits) == 3 or value >= 999.5


@given(positive, positive)
@example(999.4e-6, 999.6e-6)
@example(0.9994, 0.9996)
def test_a_longer_time_never_reads_as_a_shorter_one(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert read(text.seconds(low)) <= read(text.seconds(high)) * (1 + 1e-12)


@given(st.integers(min_value=0, max_value=2**50))
@example(1023)
@example(1024**2 - 1)
def test_bytes_read_back_to_what_they_are(value: int) -> None:
    assert read(text.amount_of_bytes(value)) == pytest.approx(value, rel=5.01e-3)


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_counts_read_back_to_what_they_are(value: float) -> None:
    assert read(text.count(value)) == pytest.approx(value, rel=5.01e-3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (999.4e-6, "999 µs"),
        (999.9e-6, "1.00 ms"),
        (0.99999, "1.00 s"),
        (9.996e-3, "10.0 ms"),
        (1.38e-3, "1.38 ms"),
        (22.2e-6, "22.2 µs"),
        (3e-10, "0.300 ns"),
        (1380.0, "1,380 s"),
        (0.0, "0 ns"),
        (math.inf, text.NOTHING),
        (math.nan, text.NOTHING),
    ],
)
def test_a_time_that_rounds_up_to_the_next_unit_is_told_in_it(value: float, said: str) -> None:
    assert text.seconds(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (1024 * 1023.9, "1.00 MiB"),
        (688 << 10, "688 KiB"),
        (5 << 40, "5.00 TiB"),
        (None, text.NOTHING),
    ],
)
def test_bytes_at_the_edges_of_their_units(value: float | None, said: str) -> None:
    assert text.amount_of_bytes(value) == said


@pytest.mark.parametrize(("value", "said"), [(999.9, "1.00k"), (206_000, "206k"), (0.5, "0.500"), (2.5e12, "2.50T")])
def test_counts_at_the_edges_of_their_units(value: float, said: str) -> None:
    assert text.count(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.5, "50.0%"), (0.0, "0.0%"), (0.0004, "<0.1%"), (0.0006, "0.1%"), (None, text.NOTHING)]
)
def test_a_share_that_is_not_nothing_never_reads_as_nothing(value: float | None, said: str) -> None:
    assert text.share(value) == said


def test_a_range_is_told_in_the_unit_of_its_median() -> None:
    assert text.seconds_range(0.9e-3, 1.1e-3, 999.9e-6) == "0.900–1.10", "999.9 µs is told as 1.00 ms"
    assert text.seconds_range(0.9e-3, 1.1e-3, 999.0e-6) == "900–1,100"
    assert text.seconds_range(0.9e-3, math.inf, 1e-3) == text.NOTHING


def test_flop_rates_of_a_cpu_are_told_in_gflop_and_of_a_gpu_in_tflop() -> None:
    assert text.flop_rate_unit(8.06e9) == (1e9, "GFLOP/s")
    assert text.flop_rate_unit(0.9999e12) == (1e12, "TFLOP/s")
    assert text.flop_rate_unit(877e12) == (1e12, "TFLOP/s")


@given(st.text(alphabet=st.characters(codec=None)))
def test_safe_text_can_neither_move_a_cursor_nor_turn_the_line(value: str) -> None:
    said = text.safe(value)
    assert len(said) == len(value)
    assert said.isprintable() or not said
    said.encode()  # no lone surrogate is left


def test_safe_text_keeps_the_letters_of_all_scripts() -> None:
    assert text.safe("Größe × µs 注意 \U0001f680") == "Größe × µs 注意 \U0001f680"


def test_plural() -> None:
    assert [text.plural(n, "case") for n in (0, 1, 2, 5185)] == ["0 cases", "1 case", "2 cases", "5,185 cases"]
    assert text.plural(2, "process", "es") == "2 processes"
