"""The laboratory wires the rooms for one run: suite → measure → evidence → judge.

`declare` fixes what will be measured, `session` measures it, `check` verifies what is on disk.
"""
