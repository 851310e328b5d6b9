"""Reports of a judgement: tables, Markdown, pages and data files."""
