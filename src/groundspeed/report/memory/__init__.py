"""A memory profile as text, as a picture, on a page, and as JSON."""

from groundspeed.report.memory.chart import to_svg as to_svg
from groundspeed.report.memory.document import to_html as to_html
from groundspeed.report.memory.views import to_json as to_json
from groundspeed.report.memory.views import to_text as to_text
