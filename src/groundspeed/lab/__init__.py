"""The laboratory connects the packages of groundspeed for one run: suite → measure → evidence → judge.

`declare` fixes what will be measured, `session` measures it, `check` verifies what is on disk.
"""
