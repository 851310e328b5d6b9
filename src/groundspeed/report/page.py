"""One HTML page that needs nothing else: frame, style, scripts, tables, and a policy under which nothing more can run.

Templates are in `templates/`; what is put into them is escaped, and without control characters, unless it is Markup.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from groundspeed.errors import GroundspeedError
from groundspeed.report import text
from groundspeed.report.plain_json import dump

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

WORDS = frozenset(
    (
        *("FASTER", "SAME", "SLOWER", "UNCLEAR", "baseline", "measured"),
        *("INCORRECT", "INVALID", "ERROR", "OOM", "TIMEOUT", "ABSENT", "SKIPPED"),
        *("passed", "failed", "yes", "no", "not determined"),
    )
)
"""Verdicts, statuses and answers that have a colour in page.css."""
SITE = " 'self' file:"
"""In a policy: scripts from where the page is. Not every browser takes a file beside it for itself."""
NEEDED = "pages for the browser and charts need two packages more: pip install 'groundspeed[report]'"


@dataclass(frozen=True)
class Column:
    title: str
    number: bool = False
    """Sorted by value, and set to the right. Units are understood: 877 µs is less than 1.2 ms. Among the first 16."""
    choose: bool = False
    """Its few values are offered in a list above the table."""
    word: bool = False
    """A verdict or a status, which has a colour."""


@dataclass(frozen=True)
class Table:
    """A table that sorts by the heading that is clicked, and filters by what is typed or chosen above it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""
    """A sentence under it."""


@dataclass(frozen=True)
class Shared:
    """What the pages of a site have in common, and a page that is alone has inside of it."""

    home: str
    """The way to the first page."""
    scripts: Sequence[str]
    """The ways to files of scripts that many pages share; they run first."""


def installed() -> bool:
    """Whether a page can be made here: the extra `report` is there. Nothing is imported to tell."""
    return all(find_spec(name) for name in ("jinja2", "vl_convert"))


def advice(bundle: str, stem: str) -> str:
    """The command that makes the report: the page where it can be made, else Markdown."""
    form = "html" if installed() else "md"
    return f"groundspeed report {bundle} --{form} {stem}.{form}"


def render(
    template: str,
    *,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    shared: Shared | None = None,
    **context: Any,
) -> str:
    """The page of a template that extends `base.html`. `scripts` run before the frame's own, in this order; `styles`
    come after its own. Under the page's policy nothing else counts, and nothing is loaded but from its site."""
    from markupsafe import Markup

    style, own = "\n".join((source("page.css"), *styles)), (*scripts, source("page.js"))
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, own))}{SITE if shared and shared.scripts else ''}; "
        f"style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template(template)
        .render(
            policy=policy,
            style=Markup(style),
            scripts=[Markup(script) for script in own],
            shared=shared,
            **context,
        )
    )


def island(value: Any) -> Markup:
    """A value as JSON inside a script element that is no script: nothing in it can end that element."""
    from markupsafe import Markup

    content = dump(value)
    for character in "<>&":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Markup(content)


@lru_cache
def source(name: str) -> str:
    """A file that comes with the templates."""
    return (importlib.resources.files(__package__) / "templates" / name).read_text("utf-8")


def _hash(content: str) -> str:
    """As a content security policy names an inline script or style."""
    if "</" in content and any(end in content.lower() for end in ("</script", "</style")):
        raise AssertionError("a script or style of ours would end its own element")
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@lru_cache
def _environment() -> Environment:
    try:
        import jinja2
    except ImportError:
        raise GroundspeedError(NEEDED) from None
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else text.safe(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["island"] = island
    environment.globals["WORDS"] = WORDS
    return environment
