"""A profile on the screen, in Markdown, on a page, and as JSON."""

from groundspeed.report.profile.document import to_html as to_html
from groundspeed.report.profile.screen import show as show
from groundspeed.report.profile.written import to_json as to_json
from groundspeed.report.profile.written import to_markdown as to_markdown
