"""Texts whose numbers are tied to bundles: `claims check` reads them and `claims write` fills them in
(docs/decisions/0011).

A comment after a number says what it is, `1.48× (1.48–1.49)<!-- tied: BUNDLE CONTENDER CASE -->`; whole tables,
sentences, charts and outputs are in generated blocks. `markdown` finds the parts of a text, `characters` what a reader
sees of it, `notation` the numbers and marks in it, and `spoken` speeds in words and percentages. `figures` resolves
what a tie means, `blocks` what belongs in a block, and `conditions` what the sentence around a number says. `check`
compares."""
