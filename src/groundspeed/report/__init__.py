"""How it is told: tables, Markdown and data files out of a judgement."""
