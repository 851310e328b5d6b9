"""Grades from measured facts: targets of a specification, gates, letters, checklists and a diagnosis."""
