"""`groundspeed verify`: recompute every number and checksum, offline."""

from __future__ import annotations

import typer

from groundspeed.cli.console import output
from groundspeed.errors import GroundspeedError

NAME = "verify"
EXAMPLE = "Example: groundspeed verify evidence/*/*"

PROVES = (
    "Hashes prove that these files are the ones that were written; the replay, that the figures follow from the "
    "samples. Who measured them is for a signature to say; whether it is true, only another run can tell."
)


def command(bundles: list[str] = typer.Argument(help="Folders, starts of identities, or `latest`.")) -> None:
    """Recompute every checksum, draw, stop and figure of bundles, without a GPU and without torch.

    Exits 1 if a bundle does not match its hashes or its protocol, 2 for something that is no bundle."""
    from rich.text import Text

    from groundspeed.evidence import store
    from groundspeed.lab import check
    from groundspeed.report.text import safe

    console, worst = output(), 0
    for name in bundles:
        try:
            found, replay = check.verify(store.find(name))
        except GroundspeedError as error:
            worst = 1 if 1 in (worst, error.exit_code) else max(worst, error.exit_code)
            console.print(Text(f"FAILED  {safe(error)}", style="red"))
            continue
        record = found.record
        console.print(Text(f"OK      {found.path}", style="green"), soft_wrap=True)
        console.print(
            f"        hashes and identity {found.short}; {replay.blocks} blocks in their drawn order; "
            f"{replay.stops} stops as declared; "
            f"{len(record.samples['process'])} samples; {replay.figures} figures recomputed"
        )
    console.print(Text(PROVES, style="dim"))
    if worst:
        raise typer.Exit(worst)
