"""Texts whose numbers are tied to bundles: what `claims check` reads and `claims write` fills in (docs/decisions/0011).

A comment after a number says what it is, `1.48× (1.48–1.49)<!-- tied: BUNDLE CONTENDER CASE -->`; whole tables,
sentences, charts and outputs stand in generated blocks. `markdown` finds the parts of a text, `notation` the numbers
and marks in it; `figures` says what a tie means, `blocks` what belongs into a block, `conditions` what the sentence
around a number says; `check` compares."""
