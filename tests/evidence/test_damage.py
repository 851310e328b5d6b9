"""Bundle damage (issue 2, point 8): whatever was done to a bundle, reading it fails in one sentence, with exit 1 for a
bundle that does not match and 2 for what is none; it never hangs, never runs code, never ends in a traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundles import facts_file, facts_of, forged, forged_facts, forged_manifest, put

from groundspeed.errors import BadInput, GroundspeedError, VerificationFailed
from groundspeed.evidence.integrity import FACTS, MANIFEST, SAMPLES, canonical, make_manifest
from groundspeed.evidence.protocol import NAME
from groundspeed.lab.check import verify

FILES = (MANIFEST, FACTS, SAMPLES)

pytestmark = pytest.mark.usefixtures("within_seconds")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / good.name))


def refused(path: Path, kind: type[GroundspeedError], *said: str) -> None:
    with pytest.raises(kind) as failure:
        verify(path)
    assert type(failure.value) is kind
    for words in said:
        assert words in str(failure.value)
    assert len(str(failure.value)) < 1000


class TestBytes:
    @pytest.mark.parametrize("name", FILES)
    def test_truncated(self, copy: Path, name: str) -> None:
        whole = (copy / name).read_bytes()
        for length in (0, 1, 2, len(whole) // 3, len(whole) // 2, len(whole) - 2, len(whole) - 1):
            (copy / name).write_bytes(whole[:length])
            refused(copy, VerificationFailed)

    @pytest.mark.parametrize("name", FILES)
    def test_extended(self, copy: Path, name: str) -> None:
        whole = (copy / name).read_bytes()
        for more in (b"\n", b" ", b"\x00", whole):
            (copy / name).write_bytes(whole + more)
            refused(copy, VerificationFailed)

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
    def test_one_byte_changed_anywhere(self, copy: Path, name: str, mask: int) -> None:
        """`verify` fails on one changed byte in any file."""
        whole = (copy / name).read_bytes()
        for place in range(0, len(whole), 1 if mask == 1 or name == MANIFEST else 11):
            (copy / name).write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            refused(copy, VerificationFailed)
        (copy / name).write_bytes(whole)
        verify(copy)

    def test_two_files_exchanged(self, copy: Path) -> None:
        facts, samples = (copy / FACTS).read_bytes(), (copy / SAMPLES).read_bytes()
        (copy / FACTS).write_bytes(samples)
        (copy / SAMPLES).write_bytes(facts)
        refused(copy, VerificationFailed, "was changed")

    def test_the_message_names_the_file(self, copy: Path) -> None:
        (copy / SAMPLES).write_bytes(b"")
        refused(copy, VerificationFailed, f"{copy / SAMPLES} was changed: its sha256 is not the one in the manifest")


class TestANumberEdited:
    """A better time, by hand, with more and more of the traces removed."""

    def edit(self, facts: Any) -> None:
        facts["stops"][0]["blocks"] = 20

    def edited(self, good: Path) -> bytes:
        facts = facts_of(good)
        self.edit(facts)
        return facts_file(facts)

    def test_alone(self, good: Path, copy: Path) -> None:
        (copy / FACTS).write_bytes(self.edited(good))
        refused(copy, VerificationFailed, FACTS, "was changed")

    def test_with_its_hash_in_the_manifest(self, good: Path, copy: Path) -> None:
        files = {FACTS: self.edited(good), SAMPLES: (copy / SAMPLES).read_bytes()}
        (copy / FACTS).write_bytes(files[FACTS])
        (copy / MANIFEST).write_bytes(make_manifest(files, NAME))
        refused(copy, VerificationFailed, "does not end in the identity of its manifest")

    def test_with_the_folder_renamed_too(self, good: Path, tmp_path: Path) -> None:
        refused(forged_facts(good, tmp_path, self.edit), VerificationFailed, "2 blocks were taken", "stopped after 20")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda f: f["protocol"].update(seed=1), "seed"),
            (lambda f: f["stops"][1].update(why="budget"), "for 'budget'"),
            (lambda f: f["outcomes"].pop(), "its outcome is missing"),
            (lambda f: f["outcomes"][0].update(max_abs=1.0), "exceeds the tolerance"),
            (lambda f: f["cases"][0].update(flops=10**15), "flops"),
            (lambda f: f["cases"][0]["tolerance"].update(max_abs=1.0), "tolerates"),
            (lambda f: f["stops"].clear(), "never stopped"),
            (lambda f: f["protocol"].update(name="mine/1"), "manifest says"),
        ],
    )
    def test_the_replay_finds_what_hashes_cannot(
        self, good: Path, tmp_path: Path, change: Callable[[Any], Any], said: str
    ) -> None:
        def edit(facts: Any) -> None:
            change(facts)

        refused(forged_facts(good, tmp_path, edit), VerificationFailed, said)


class TestFolder:
    @pytest.mark.parametrize("name", [FACTS, SAMPLES])
    def test_a_file_is_missing(self, copy: Path, name: str) -> None:
        (copy / name).unlink()
        refused(copy, VerificationFailed, f"{name} is missing")

    def test_without_its_manifest_it_is_no_bundle(self, copy: Path) -> None:
        (copy / MANIFEST).unlink()
        refused(copy, BadInput, "is not a bundle: it has no manifest.json")

    @pytest.mark.parametrize("name", ["notes.txt", "samples.npz.bak", ".hidden", "\x1b[2J", "a\nb", "ü", "\udcff"])
    def test_an_extra_file(self, copy: Path, name: str) -> None:
        (copy / name).write_bytes(b"")
        refused(copy, VerificationFailed, "is not in the manifest")

    def test_an_extra_folder(self, copy: Path) -> None:
        (copy / "more").mkdir()
        refused(copy, VerificationFailed, "'more' is not in the manifest")

    @pytest.mark.parametrize("name", FILES)
    def test_a_link_in_place_of_a_file(self, good: Path, copy: Path, name: str) -> None:
        """Even to the very same content: what it points to may change."""
        (copy / name).unlink()
        (copy / name).symlink_to(good / name)
        refused(copy, VerificationFailed, f"{name} is a symbolic link")

    @pytest.mark.parametrize("target", ["nowhere", "/dev/zero", "/etc/passwd", "."])
    def test_a_link_to_somewhere_else(self, copy: Path, target: str) -> None:
        (copy / FACTS).unlink()
        (copy / FACTS).symlink_to(target)
        refused(copy, VerificationFailed, "is a symbolic link")

    @pytest.mark.parametrize("name", FILES)
    def test_a_pipe_in_place_of_a_file(self, copy: Path, name: str) -> None:
        (copy / name).unlink()
        os.mkfifo(copy / name)
        refused(copy, VerificationFailed, f"{name} is not a plain file")

    @pytest.mark.parametrize("name", FILES)
    def test_a_folder_in_place_of_a_file(self, copy: Path, name: str) -> None:
        (copy / name).unlink()
        (copy / name).mkdir()
        refused(copy, VerificationFailed, f"{name} is not a plain file")

    @pytest.mark.parametrize("name", FILES)
    def test_a_huge_file(self, copy: Path, name: str) -> None:
        """64 GiB of nothing: refused by its size, unread."""
        os.truncate(copy / name, 64 << 30)
        refused(copy, VerificationFailed, "68,719,476,736 bytes, more than the")

    @pytest.mark.parametrize("name", FILES)
    def test_a_file_that_may_not_be_read(self, copy: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        really_open = os.open

        def guarded(path: Any, *arguments: Any, **keywords: Any) -> int:
            if str(path).endswith(name):
                raise PermissionError(13, "Permission denied")
            return really_open(path, *arguments, **keywords)

        monkeypatch.setattr(os, "open", guarded)
        refused(copy, BadInput, f"{copy / name}: Permission denied")

    def test_a_disk_that_fails_to_read(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def failing(descriptor: int) -> os.stat_result:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", failing)
            with pytest.raises(BadInput, match="Input/output error"):
                verify(copy)

    def test_renamed(self, copy: Path) -> None:
        refused(copy.rename(copy.parent / "my favourite"), VerificationFailed, "the folder was renamed")

    def test_not_there(self, tmp_path: Path) -> None:
        refused(tmp_path / "nowhere", BadInput, "there is no such folder")

    def test_a_file_instead_of_a_folder(self, good: Path) -> None:
        refused(good / FACTS, BadInput, "not a folder")

    @pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
    def test_a_name_that_no_folder_can_have(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(BadInput, match="is not a bundle"):
            verify(tmp_path / name)

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        refused(tmp_path, BadInput, "is not a bundle")


class TestManifest:
    """With hashes and the folder's name right: what the manifest itself says."""

    def test_a_newer_format(self, good: Path, tmp_path: Path) -> None:
        newer = forged_manifest(good, tmp_path, lambda m: m["predicate"].update(format=2))
        refused(newer, BadInput, "written by a newer groundspeed (format 2", "upgrade groundspeed")

    @pytest.mark.parametrize("key", ["_type", "predicateType"])
    def test_a_statement_about_something_else(self, good: Path, tmp_path: Path, key: str) -> None:
        other = forged_manifest(good, tmp_path, lambda m: m.update({key: "https://slsa.dev/provenance/v1"}))
        refused(other, BadInput, "about something else")

    @pytest.mark.parametrize("key", ["_type", "predicateType", "predicate", "subject"])
    def test_a_part_is_missing(self, good: Path, tmp_path: Path, key: str) -> None:
        refused(
            forged_manifest(good, tmp_path, lambda m: _without(m, key)), BadInput, "not the manifest of a bundle", key
        )

    @pytest.mark.parametrize(
        "manifest", [None, [], "x", 1, True, {}, {"_type": []}, [["_type", 1]], {"subject": {"name": 1}}]
    )
    def test_another_kind_of_json(self, good: Path, tmp_path: Path, manifest: Any) -> None:
        refused(put(tmp_path, canonical(manifest), {}), BadInput)

    @pytest.mark.parametrize(
        "subject",
        [
            None,
            7,
            {},
            [],
            "facts.json",
            ["facts.json"],
            [{"name": "facts.json"}],
            [{"name": "facts.json", "digest": None}],
            [{"name": "facts.json", "digest": {"md5": "0"}}],
            [{"name": ["facts.json"], "digest": {"sha256": "0"}}],
            [{"name": 1, "digest": {"sha256": "0"}}, {"name": "x", "digest": {"sha256": "0"}}],
        ],
    )
    def test_a_damaged_subject(self, good: Path, tmp_path: Path, subject: Any) -> None:
        path = forged_manifest(good, tmp_path, lambda m: m.update(subject=subject))
        with pytest.raises((BadInput, VerificationFailed)):
            verify(path)

    @pytest.mark.parametrize("name", ["../facts.json", "/etc/passwd", "facts\x1b[2J.json", "", "a/b", "ü", "x" * 500])
    def test_a_name_that_no_file_of_a_bundle_has(self, good: Path, tmp_path: Path, name: str) -> None:
        def rename(manifest: Any) -> None:
            manifest["subject"][0]["name"] = name

        refused(forged_manifest(good, tmp_path, rename), VerificationFailed, "must name facts.json and samples.npz")

    def test_a_file_named_twice(self, good: Path, tmp_path: Path) -> None:
        path = forged_manifest(good, tmp_path, lambda m: m["subject"].append(m["subject"][0]))
        refused(path, VerificationFailed, "not in canonical form")

    @pytest.mark.parametrize("digest", ["", "0" * 64, None, 7, ["0"], {"x": 1}])
    def test_a_digest_of_nothing(self, good: Path, tmp_path: Path, digest: Any) -> None:
        def change(manifest: Any) -> None:
            manifest["subject"][0]["digest"]["sha256"] = digest

        refused(forged_manifest(good, tmp_path, change), VerificationFailed, "was changed")

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: m.update(note="hello"),
            lambda m: m["predicate"].update(verdict="FASTER"),
            lambda m: m["predicate"].update(format=True),
            lambda m: m["predicate"].update(format=1.0),
            lambda m: m["subject"].reverse(),
            lambda m: m["subject"][0]["digest"].update(md5="0"),
        ],
    )
    def test_more_or_other_than_a_manifest_has(self, good: Path, tmp_path: Path, change: Callable[[Any], Any]) -> None:
        """The predicate holds only format version and protocol name."""

        def edit(manifest: Any) -> None:
            change(manifest)

        refused(forged_manifest(good, tmp_path, edit), VerificationFailed, "not in canonical form")

    def test_in_another_order_or_with_spaces(self, good: Path, tmp_path: Path) -> None:
        manifest = json.loads((good / MANIFEST).read_bytes())
        path = put(tmp_path, json.dumps(manifest).encode(), {})
        refused(path, VerificationFailed, "not in canonical form")

    def test_a_protocol_that_is_not_the_records(self, good: Path, tmp_path: Path) -> None:
        other = forged_manifest(good, tmp_path, lambda m: m["predicate"].update(protocol="sequential/1"))
        refused(
            other, VerificationFailed, "measured by protocol 'paired-blocks/5', but its manifest says 'sequential/1'"
        )

    @pytest.mark.parametrize("protocol", [None, 1, ["paired-blocks/5"]])
    def test_a_protocol_without_a_name(self, good: Path, tmp_path: Path, protocol: Any) -> None:
        other = forged_manifest(good, tmp_path, lambda m: m["predicate"].update(protocol=protocol))
        refused(other, BadInput, "not the manifest of a bundle")

    @pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 60_000, b'{"a":1e999}', b'{"a":"\\ud800"}'])
    def test_not_json(self, tmp_path: Path, raw: bytes) -> None:
        refused(put(tmp_path, raw, {}), BadInput, "not readable as JSON")


class TestFacts:
    """With every hash right: facts that no run could have left. More of them in test_record.py."""

    def test_a_newer_schema(self, good: Path, tmp_path: Path) -> None:
        newer = forged_facts(good, tmp_path, lambda f: f.update(schema=7, marvels=[]))
        refused(newer, BadInput, "written by a newer groundspeed (schema 7, this one reads up to 6)", "upgrade")

    @pytest.mark.parametrize("schema", [0, -1, "1", 1.0, True, None, []])
    def test_a_schema_that_does_not_exist(self, good: Path, tmp_path: Path, schema: Any) -> None:
        refused(forged_facts(good, tmp_path, lambda f: f.update(schema=schema)), BadInput, "schema")

    @pytest.mark.parametrize("content", [b"", b"null", b"[]", b"7", b"{}", b"{", b"\x80", b'{"schema": 1e999}'])
    def test_no_facts(self, good: Path, tmp_path: Path, content: bytes) -> None:
        refused(forged(good, tmp_path, facts=content), BadInput, FACTS)

    def test_deep_nesting_where_anything_may_stand(self, good: Path, tmp_path: Path) -> None:
        deep = '{"a":' * 400 + "1" + "}" * 400
        content = (good / FACTS).read_text().replace('"gpu": null', f'"gpu": {deep}')
        refused(forged(good, tmp_path, facts=content.encode()), BadInput, "nested more than")

    @pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202eb", "", "x" * 300, "\u2028"])
    @pytest.mark.parametrize("kind", ["cases", "contenders"])
    def test_a_name_that_would_disturb_a_terminal(self, good: Path, tmp_path: Path, kind: str, name: str) -> None:
        content = (good / FACTS).read_text()
        old = facts_of(good)[kind][-1]["name"]
        renamed = content.replace(json.dumps(old), json.dumps(name))
        refused(forged(good, tmp_path, facts=renamed.encode()), BadInput, "cannot be the name of a")


def _without(manifest: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in manifest.items() if k != key}
