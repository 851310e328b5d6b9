"""`groundspeed show`: prints the table and the claims of a bundle again."""

from __future__ import annotations

import typer

from groundspeed.cli.console import bundle_name, output
from groundspeed.cli.flags import checked_price
from groundspeed.errors import BadInput

NAME = "show"
EXAMPLE = "Example: groundspeed show latest --baseline sdpa-flash"


def command(
    bundle: str = typer.Argument(help="A folder, the start of a bundle's identity, or `latest`."),
    baseline: str | None = typer.Option(
        None, help="Compare with this contender of the run; every claim then says that it was chosen afterwards."
    ),
    price_per_hour: float = typer.Option(
        None, help="Price of one device hour; adds what the run cost.", show_default=False
    ),
) -> None:
    """Print the table and the claims of a bundle again, including each claim about a single case."""
    from groundspeed.evidence import store
    from groundspeed.evidence.integrity import PROFILE, kind_of
    from groundspeed.judge.judgement import against, judge
    from groundspeed.lab import check
    from groundspeed.lab import profile as profiles
    from groundspeed.report import screen
    from groundspeed.report.profile import show as show_profile

    price, where = checked_price(price_per_hour), store.find(bundle)
    if kind_of(where) is PROFILE:
        if baseline is not None or price is not None:
            raise BadInput(f"{bundle} is a profile, which has no baseline and no cost; leave out the flags")
        profile, picture, _ = profiles.verify(where)
        show_profile(output(), picture, profile.path, bundle_name(profile.path, profile.short, store.PROFILES))
        return
    found, replay = check.verify(where)
    name = bundle_name(found.path, found.short, store.RUNS)
    judgement = replay.judgement if baseline is None else judge(against(found.record, baseline))
    screen.show(output(), judgement, found.path, name, every_claim=True, price_per_hour=price)
