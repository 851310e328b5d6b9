"""Grades: targets of a specification, gates, letters, checklists and a diagnosis, from measured facts."""
