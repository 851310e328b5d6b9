"""A profile as a bundle of a manifest and facts, without samples: written whole or not at all, and read only if it
verifies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence import bundle, integrity
from groundspeed.evidence.decode import decode, parse_json
from groundspeed.evidence.integrity import FACTS
from groundspeed.evidence.profile import NAME, SCHEMA, Profile
from groundspeed.evidence.tables import entries, plain, tabulate

TABLES = ("seen", "calls", "events", "counted")
REPORT = ".ncu-rep"
MAX_REPORT_BYTES = 1 << 30


@dataclass(frozen=True)
class ProfileBundle:
    path: Path
    identity: str
    profile: Profile

    @property
    def short(self) -> str:
        return self.identity[:12]

    def report_of(self, contender: str) -> Path:
        """Return the path at which Nsight Compute's own report of a contender is kept on request. It lies beside the
        bundle, whose set of files is fixed."""
        number = [c.name for c in self.profile.contenders].index(contender)
        return self.path.with_name(f"{self.path.name}.{number:02}-{_plain_name(contender)}{REPORT}")


def _plain_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:80]


def write(profile: Profile, parent: Path, stem: str) -> ProfileBundle:
    files = {FACTS: bundle.dump_facts(tabulate(plain(profile), TABLES), TABLES)}
    path, identity = bundle.put(files, integrity.make_manifest(files, NAME, integrity.PROFILE), parent, stem)
    return ProfileBundle(path, identity, profile)


def read(folder: Path) -> ProfileBundle:
    """Return a profile whose every byte is what its manifest says. VerificationFailed or BadInput otherwise."""
    files, where = integrity.read_files(folder, integrity.PROFILE), str(folder / FACTS)
    if files.protocol != NAME:
        raise VerificationFailed(f"{folder}: its manifest says {files.protocol!r:.40}, but a profile is {NAME}")
    facts = parse_json(files.facts, where)
    if isinstance(facts, dict):
        schema = facts.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise BadInput(
                f"{where}: written by a newer groundspeed (schema {schema}, this one reads up to {SCHEMA}); "
                "upgrade groundspeed to read it"
            )
        facts = {key: entries(value, f"{where}.{key}") if key in TABLES else value for key, value in facts.items()}
    profile = decode(Profile, facts, where)
    if profile.schema != SCHEMA:
        raise BadInput(f"{where}: schema {profile.schema} does not exist")
    return ProfileBundle(folder, files.identity, profile)


def check_reports(found: ProfileBundle) -> int:
    """Return how many reports of Nsight Compute lie beside the bundle. VerificationFailed for one whose hash is not
    that in the bundle."""
    kept = 0
    for seen in found.profile.seen:
        path = found.report_of(seen.contender)
        if not path.exists():
            continue
        if integrity.sha256(integrity.read_plain_file(path, MAX_REPORT_BYTES)) != seen.report_sha256:
            raise VerificationFailed(f"{path} is not the report that this profile was made from")
        kept += 1
    return kept
