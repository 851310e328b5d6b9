"""What importing groundspeed.hf does and needs, proved in fresh processes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import transformers

import groundspeed as gs
from groundspeed.hf import attention, masks


def fresh(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_makes_the_name_known() -> None:
    source = "import sys, groundspeed as gs\nprint('transformers' in sys.modules, 'torch' in sys.modules)\n"
    source += (
        "gs.hf\nimport transformers\nfrom transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as masks\n"
    )
    source += "print('groundspeed' in transformers.AttentionInterface().valid_keys(), 'groundspeed' in masks)"
    assert fresh(source) == "False False\nTrue True"


def test_without_transformers_it_says_how_to_get_it() -> None:
    source = "import sys; sys.modules['transformers'] = None; import groundspeed as gs\n"
    source += "for name in ('hf', 'patch'):\n  try: getattr(gs, name)\n  except ImportError as error: print(error)"
    said = "groundspeed.hf needs Hugging Face Transformers 5 or newer: pip install 'groundspeed[hf]'"
    assert fresh(source) == f"{said}\n{said}"


def test_an_old_transformers_is_named() -> None:
    source = "import sys, types; old = sys.modules['transformers'] = types.ModuleType('transformers')\n"
    source += "old.__version__ = '4.57.1'\ntry: import groundspeed.hf\nexcept ImportError as error: print(error)"
    assert fresh(source).endswith("pip install 'groundspeed[hf]' (4.57.1 is installed)")


def test_registering_again_brings_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(transformers.AttentionInterface._global_mapping, "groundspeed")
    monkeypatch.delitem(transformers.AttentionMaskInterface._global_mapping, "groundspeed")
    gs.hf.register()
    assert transformers.AttentionInterface()["groundspeed"] is attention.attention
    assert transformers.AttentionMaskInterface()["groundspeed"] is masks.mask
