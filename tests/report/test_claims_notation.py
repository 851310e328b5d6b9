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
        "700 teraflops",
        "1.2 petaflops",
        "622 TFlop/s",
        "622 TFLOPs/s",
        "46 gflops",
        "3 GB per second",
        "20 tokens/sec",
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
        ("It is 10×faster.", "10×"),
        ("It is **10**× faster.", "10**×"),
        ("It is 1.7 times as quick.", "1.7 times as quick"),
        ("It is 1.7 times as fast.", "1.7 times as fast"),
        ("It has 1.7 times cuDNN's speed.", "1.7 times cuDNN's speed"),
        ("It has 1.7 times cuDNN’s raw throughput.", "1.7 times cuDNN’s raw throughput"),
        ("It has 1.7 times `sdpa-math` speed.", "1.7 times `sdpa-math` speed"),
        ("It is ten times faster.", "ten times faster"),
        ("It is Ten-times faster.", "Ten-times faster"),
        ("It is hundreds of times faster.", "hundreds of times faster"),
        ("It is twice as fast.", "twice as fast"),
        ("It is half as fast.", "half as fast"),
        ("It has twice the speed.", "twice the speed"),
        ("It doubles cuDNN's throughput.", "doubles cuDNN's throughput"),
        ("It is an order of magnitude faster.", "order of magnitude faster"),
        ("It is a threefold speed-up.", "threefold speed-up"),
        ("It saves 40% of the time.", "40% of the time"),
        ("It saves you 40 % of your time.", "40 % of your time"),
        ("It reduces latency by 40%.", "40%"),
        ("It cuts 40 percent of cuDNN's latency.", "40 percent of cuDNN's latency"),
        ("It takes 30 percent less time.", "30 percent less time"),
        ("It has 30% higher throughput.", "30% higher throughput"),
        ("It has 93% of the dense rate.", "93% of the dense rate"),
        ("It has 113% of cuDNN's speed.", "113% of cuDNN's speed"),
        ("It is 12% ahead.", "12% ahead"),
        ("A three-fold increase in speed.", "three-fold increase in speed"),
        ("It beats every rival in every case, by at least 6%.", "6%"),
    ],
)
def test_a_speed_in_words(sentence: str, figure: str) -> None:
    assert claimed(sentence) == [figure]


@pytest.mark.parametrize(
    "figure",
    [
        "10&times;",
        "10&#215;",
        "10&#xD7;",
        "10 &times;",
        "&#49;0&times;",
        "1&#46;5×",
        "1\\.5×",
        "1&period;5&times;",
        "867&nbsp;µs",
        "867 &micro;s",
        "867&thinsp;&mu;s",
        "867&nbsp;&#956;s",
        "867\N{ZERO WIDTH SPACE}µs",
        "10⨯",
        "10$\\times$",
        "10\\times",
        "10<b>×</b>",
        "<em>10</em>&nbsp;×",
        "12\\% faster",
        "12&percnt; faster",
    ],
)
def test_a_text_is_read_as_it_is_shown(figure: str) -> None:
    (found,) = claimed(f"It reads {figure} here.")
    assert found.removesuffix("</b>").removesuffix("$").endswith(figure[-1]) or found in figure
    assert claimed(f"| a | b |\n|---|---|\n| x | {figure} |\n")


def test_what_is_shown_lies_where_its_source_lies() -> None:
    text = Text("a &times; b&nbsp;c &unknown; &#10; 1&#46;5 \\|&vert;<b>x</b> d\n")
    assert len(text.markdown.shown) == len(text.content)
    assert text.markdown.shown == "a       × b      c &unknown;       1,,,,.5 \\|         x     d\n"


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
        "It was called three times at full speed.",
        "Sequences are twice as long, and half the tiles are empty.",
        "The device is kept busy for twice the time.",
        "Copies take under 1% of the time; 13.0% of the process time.",
        "It saves 40% of the memory, and reduces registers by 12%.",
        "The layer has 4 GFLOP of work.",
        "AT&T; &amp; 3 &lt; 4",
        "Ten times, two times, a double.",
        "It loses 10% of the time.",
        "3-fold cross validation, and a three-fold increase in users.",
        "Half our performance tests failed; 5% of our performance budget is spent.",
        "20% of the sampling rate.",
        "We are 10% behind schedule.",
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
        ("percent less time", Unit("percent")),
        ("percent of peak", Unit("share")),
        ("teraflops", Unit("flops", 1e12)),
        ("Gflop/s", Unit("flops", 1e9)),
        ("GB per second", Unit("bytes", 1e9)),
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
