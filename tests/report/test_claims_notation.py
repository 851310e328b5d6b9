"""D4: what counts as a speed number in a text, and what does not."""

from __future__ import annotations

import pytest

from groundspeed.report.tied.conditions import said_in
from groundspeed.report.tied.notation import Text, Unit, unit_of


def claimed(content: str) -> list[str]:
    text = Text(content)
    return [content[slice(*figure.span)] for figure in text.figures if text.must_be_tied(figure)]


@pytest.mark.parametrize(
    "figure",
    [
        "1.48×",
        "1.48× (1.47–1.49)",
        "1.48× (95% CI 1.47–1.49)",
        "2x",
        "2X",
        "3-fold",
        "3 msec",
        "1.5 seconds",
        "0.0041×",
        "12.3×",
        "622 TFLOP/s",
        "622 TFLOPS",
        "46.7 GFLOP/s",
        "1.2 PFLOP/s",
        "3,350 GB/s",
        "4.8 TB/s",
        "1.16M tokens/s",
        "1.16 M tokens/s",
        "20 tokens per second",
        "1.38 ms",
        "1.38 ms (1.34–1.42)",
        "867 µs",
        "867 μs",
        "867 us",
        "867µs",
        "12\N{NO-BREAK SPACE}ms",
        "20 ns",
        "3 milliseconds",
        "1.5 s",
        "867\nµs",
        "867<!-- hidden -->µs",
    ],
)
def test_a_speed_number(figure: str) -> None:
    assert claimed(f"It reads {figure} here.") == [figure]
    if "\n" not in figure:
        assert claimed(f"| a | b |\n|---|---|\n| x | {figure} |\n") == [figure]
    if "hidden" not in figure:  # what is a comment in a text is text in code
        assert claimed(f"`{figure}` and so on") == [figure]
        assert claimed(f"```\n{figure}\n```\n") == [figure]


@pytest.mark.parametrize(
    ("sentence", "figure"),
    [
        ("It is 12% faster.", "12% faster"),
        ("It is 12%\nslower than that.", "12%\nslower"),
        ("It is 12%<!-- --> slower than that.", "12%<!-- --> slower"),
        ("It is faster by about 12% there.", "12%"),
        ("It reaches 62.5% of peak.", "62.5% of peak"),
        ("It is 2.3 times as fast.", "2.3 times as fast"),
        ("It is 1.5 x faster.", "1.5 x"),
        ("It is 4 times faster.", "4 times faster"),
    ],
)
def test_a_speed_in_words(sentence: str, figure: str) -> None:
    assert claimed(sentence) == [figure]


@pytest.mark.parametrize(
    "sentence",
    [
        "Above 1× is faster.",
        "A tile of 64×16, or 64 × 16, with 8 warps.",
        "Outside 1.5×IQR.",
        "On 8× H100.",
        "A limit of 60 s, and 90s, and 3 seconds.",
        "| tile 64×16 |\n|---|\n| 3 |\n",
        "4 x 4 tiles, 2 folds.",
        "The 95% interval, 20% trimmed, a floor of 1%.",
        "It adds 2.63 MiB.",
        "S=4096, D=128, 0x10, v1.2.3.",
        "<!-- 1.5× --> hidden",
        "[here](https://example.org/1.5×)",
        "https://example.org/2x/1.5ms",
        "How many ms? × and µs.",
        "We use 5 messages, 3 msgs.",
    ],
)
def test_no_speed_number(sentence: str) -> None:
    assert claimed(sentence) == []


def test_a_unit_in_the_head_of_a_table_is_that_of_its_numbers() -> None:
    assert claimed("| case | TFLOP/s | note |\n|---|---:|---|\n| a | 622 | 3 runs |\n| b | **1,020** | |\n") == [
        "622",
        "1,020",
    ]
    assert claimed("| case, TFLOP/s | ours | cuDNN |\n|---|---:|---|\n| s4096 | 622 | 640 |\n") == ["622", "640"]
    assert claimed("| case | speed-up |\n|---|---:|\n| a | 1.5 (1.4–1.6) |\n") == ["1.5 (1.4–1.6)"]


@pytest.mark.parametrize(
    ("said", "unit"),
    [
        ("×", Unit("speed-up")),
        ("times as fast", Unit("speed-up")),
        ("% of the peak", Unit("share")),
        ("% faster", Unit("percent")),
        ("ms", Unit("seconds", 1e-3)),
        ("microseconds", Unit("seconds", 1e-6)),
        ("msec", Unit("seconds", 1e-3)),
        ("seconds", Unit("seconds")),
        ("fold", Unit("speed-up")),
        ("us", Unit("seconds", 1e-6)),
        ("s", Unit("seconds")),
        ("TFLOPS", Unit("flops", 1e12)),
        ("GB/s", Unit("bytes", 1e9)),
        ("GiB/s", Unit("bytes", 2.0**30)),
        ("KiB", Unit("memory", 2.0**10)),
        ("M tokens/s", Unit("tokens", 1e6)),
        ("tok/s", Unit("tokens")),
        ("samples a second", Unit("samples")),
    ],
)
def test_a_unit_says_what_a_number_is_of(said: str, unit: Unit) -> None:
    assert unit_of(said) == unit


def test_what_a_sentence_says_about_the_work() -> None:
    assert said_in("At B = 4, S=16k and D=128, in BF16 and float16, causal, in a CUDA graph") == {
        "B": {4},
        "S": {16384},
        "D": {128},
        "dtype": {"bf16", "fp16"},
        "causal": {True},
        "clock": {"graph"},
    }
    assert said_in("full and non-causal") == {"causal": {False}}
    assert said_in("The report has the reasons in full.") == {}
