"""A self-contained HTML page: frame, style, scripts, tables, and a policy under which nothing else can run.

Templates are in `templates/`. Values put into them are escaped and lose their control characters, unless they are
Markup.
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
"""Allows, in a policy, scripts from the page's own site. Not every browser counts a file beside the page as 'self'."""
NEEDED = "HTML pages and charts need two more packages: pip install 'groundspeed[report]'"


@dataclass(frozen=True)
class Column:
    title: str
    number: bool = False
    """Sorted by value and aligned to the right. Sorting understands units: 877 µs is less than 1.2 ms. Only the first
    16 columns of a table can be numbers."""
    choose: bool = False
    """Its few values are offered in a list above the table, as a filter."""
    word: bool = False
    """Its cells are verdicts or statuses, which have a colour."""


@dataclass(frozen=True)
class Table:
    """A table that a page sorts by the heading that is clicked, and filters by what is typed or chosen above it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""
    """A sentence under the table."""


@dataclass(frozen=True)
class Shared:
    """What the pages of a site share; a standalone page contains all its scripts."""

    home: str
    """The path to the first page."""
    scripts: Sequence[str]
    """The paths to script files that many pages share; they run first."""


def installed() -> bool:
    """Return whether the extra `report`, which a page needs, is installed. Nothing is imported to find out."""
    return all(find_spec(name) for name in ("jinja2", "vl_convert"))


def advice(bundle: str, stem: str) -> str:
    """Return the command that makes the report: the page if it can be made here, else Markdown."""
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
    """Return the page of a template that extends `base.html`. `scripts` run before the frame's own, in this order;
    `styles` come after its own. Under the page's policy no other script or style takes effect, and nothing is loaded
    except from its site."""
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
    """Return a value as JSON for a script element that holds data. Nothing in it can end that element."""
    from markupsafe import Markup

    content = dump(value)
    for character in "<>&":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Markup(content)


@lru_cache
def source(name: str) -> str:
    """Return the content of a file in `templates/`."""
    return (importlib.resources.files(__package__) / "templates" / name).read_text("utf-8")


def _hash(content: str) -> str:
    """Return the hash by which a content security policy names an inline script or style."""
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
