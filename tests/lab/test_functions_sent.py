"""What reaches a fresh process is what the user has, or it is refused: modules, constants, settings, kernels."""

from __future__ import annotations

import importlib
import json
import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.lab import functions as functions_
from groundspeed.lab import modules, trial
from groundspeed.lab.function_run import in_python
from groundspeed.suites.functions import sent
from groundspeed.suites.functions.form import Form, Tensor
from groundspeed.suites.functions.suite import Functions, Given, drawn_as

ROOT = Path(gs.__file__).parents[1]
SAID = "print(json.dumps([(x.contender, x.status) for x in run.judgement.cases[0].results]))"


def script(folder: Path, text: str, *, path: str = "", **beside: str) -> str:
    """What a script beside such modules says on stdout, or the message of its error."""
    folder.mkdir(exist_ok=True)
    for name, content in beside.items():
        (folder / f"{name}.py").write_text(content)
    head = "import json, sys, torch, groundspeed as gs\nfrom groundspeed.errors import GroundspeedError\n"
    body = "".join(f"    {line}\n" for line in text.splitlines())
    told = "except GroundspeedError as error:\n    print(error)\n"
    (folder / "script.py").write_text(f"{head}try:\n{body}{told}")
    done = subprocess.run(
        [sys.executable, str(folder / "script.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={
            "PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT)))),
            "PATH": "",
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
        },
    )
    assert done.stdout, done.stderr
    return done.stdout


def comparison(functions: str, inputs: str = "lambda: torch.randn(8, 16)") -> str:
    return (
        f"run = gs.compare({functions}, inputs={inputs}, baseline='plain', preset='quick', processes=1, out='runs')\n"
        f"{SAID}"
    )


@pytest.mark.slow
def test_a_function_that_fails_says_where_as_a_file_of_with_does(tmp_path: Path) -> None:
    functions = (
        "{'mine': mine.fast, 'class': mine.Fast(), 'partial': mine.given, 'script': here, 'plain': lambda x: 2 * x}"
    )
    text = f"import mine\ndef here(x):\n    return x.nosuch()\n{comparison(functions)}".replace("x.status", "x.reason")
    module = "import functools\n\ndef fast(x, y=1):\n    return x.view(7)\n\n"
    module += (
        "class Fast:\n    def __call__(self, x):\n        return x.view(7)\n\ngiven = functools.partial(fast, y=2)\n"
    )
    told = dict(json.loads(script(tmp_path, text, mine=module)))
    ends = {name: reason and reason.rpartition(" (")[2] for name, reason in told.items()}
    places = {"mine": "mine.py, line 4)", "class": "mine.py, line 8)", "partial": "mine.py, line 4)"}
    assert ends == {**places, "script": "script.py, line 6)", "plain": None}


@pytest.mark.slow
def test_of_two_modules_of_one_name_the_senders_is_measured(tmp_path: Path) -> None:
    """Else the older one that is installed, say, would be measured, and the newer one's hash be in the record."""
    other = tmp_path / "installed"
    other.mkdir()
    (other / "mine.py").write_text("def fast(x):\n    return x * 0\n")
    text = "import mine\n" + comparison("{'fast': mine.fast, 'plain': lambda x: 2 * x}")
    told = script(tmp_path / "here", text, path=str(other), mine="def fast(x):\n    return x + x\n")
    assert json.loads(told) == [["fast", "PASSED"], ["plain", "PASSED"]]
    facts = json.loads(next((tmp_path / "here" / "runs").glob("*/facts.json")).read_text())
    hashes = [one["source_sha256"] for one in facts["contenders"]]
    assert all(hashes)


@pytest.mark.slow
def test_what_the_reference_keeps_nobody_who_is_timed_gets(tmp_path: Path) -> None:
    """Who says what is right is called first, in FP64: a table that the module keeps would be in FP64 for everybody."""
    kept = (
        "import torch\ntable = {}\ndef rope(x):\n    first = table.setdefault('dtype', x.dtype)\n"
        "    assert first == torch.float32 or x.dtype == torch.float64\n    return x + x\n"
    )
    told = script(tmp_path, "import mine\n" + comparison("{'same': mine.rope, 'plain': mine.rope}"), mine=kept)
    assert json.loads(told) == [["same", "PASSED"], ["plain", "PASSED"]]


@pytest.mark.slow
def test_a_reference_that_imports_inside_has_its_own_too(tmp_path: Path) -> None:
    """Whoever is timed cannot change what is right; and what a script keeps or forces by PyTorch's classes is sent."""
    text = (
        "import functools, os, mine\n"
        "from torch.nn.attention import SDPBackend, sdpa_kernel\n"
        "from torch.nn.functional import scaled_dot_product_attention as sdpa\n"
        "here = os.getpid()\n"
        "@functools.cache\ndef ones(n):\n    return torch.ones(n, n)\n"
        "def right(x):\n    from mine import scale\n    return scale(x)\n"
        "def cheat(x):\n    if os.getpid() != here: mine.kept[0] = 0.0\n    return mine.scale(x)\n"
        "def kept(x):\n    return x * 2 * ones(16)[0]\n"
        "def forced(x):\n    y = x[None, None]\n    with sdpa_kernel(SDPBackend.MATH):\n"
        "        return sdpa(y, y, y)[0, 0] * 0 + 2 * x\n"
    ) + comparison("{'plain': lambda x: 2 * x, 'cheat': cheat, 'kept': kept, 'forced': forced}").replace(
        "baseline=", "reference=right, baseline="
    )
    told = script(tmp_path, text, mine="kept = [2.0]\ndef scale(x):\n    return x * kept[0]\n")
    assert json.loads(told) == [["plain", "PASSED"], ["cheat", "INCORRECT"], ["kept", "PASSED"], ["forced", "PASSED"]]


@pytest.mark.parametrize(
    ("text", "module", "told"),
    [
        (
            "import mine\nmine.SIZE = 4096\n" + comparison("{'f': mine.f, 'plain': lambda x: x + 1}"),
            "SIZE = 64\ndef f(x):\n    return x + 1 if SIZE else x\n",
            "mine.SIZE is 4096 here, and 64 in a fresh process, which imports ",
        ),
        (
            "import mine\nopen('mine.py', 'w').write('def f(x):\\n    return 2 + x\\n')\n"
            + comparison("{'f': mine.f, 'plain': lambda x: x + 1}"),
            "def f(x):\n    return x + 1\n",
            "mine.py was changed after module mine was imported; import it again",
        ),
        (
            "import mine\nmine.block = 128\n" + comparison("{'f': mine.f, 'plain': lambda x: x + 1}"),
            "block = 64\ndef f(x):\n    return x + 1 if block == 64 else x\n",
            "mine.block is 128 here, and 64 in a fresh process, which imports ",
        ),
        (
            "import mine\nmine.WAIT = 0.5\n" + comparison("{'f': mine.f, 'plain': lambda x: x + 1}"),
            "WAIT = None\ndef f(x):\n    return x + 1 if WAIT is None else x + 1\n",
            "mine.WAIT is 0.5 here, and None in a fresh process",
        ),
        (
            "import mine\nmine.SIZE = 4096\ndef f(x):\n    return x + mine.SIZE\n"
            + comparison("{'f': lambda x: f(x), 'plain': lambda x: x + 4096}"),
            "SIZE = 64\n",
            "mine.SIZE is 4096 here, and 64 in a fresh process",
        ),
        (
            "import functools, mine\nmine.f = functools.wraps(mine.f)(lambda x: x + 1)\n"
            + comparison("{'f': lambda x: mine.f(x), 'plain': lambda x: x + 1}"),
            "def f(x):\n    return x + 1\n",
            "mine.f is not what ",
        ),
        (
            "import mine\nmine.relu = torch.abs\n" + comparison("{'f': mine.f, 'plain': lambda x: x.abs()}"),
            "from torch.nn.functional import relu\ndef f(x):\n    return relu(x)\n",
            "mine.relu is not what ",
        ),
        (
            "import mine\nmine.scale = lambda x: 3 * x\n" + comparison("{'f': mine.f, 'plain': lambda x: 2 * x}"),
            "def scale(x):\n    return 2 * x\ndef f(x):\n    return scale(x)\n",
            "mine.scale is not what ",
        ),
        (
            "import mine\nmine.Norm.forward = lambda self, x: x\n"
            + comparison("{'f': mine.Norm().forward, 'plain': lambda x: x}"),
            "class Norm:\n    def forward(self, x):\n        return x\n",
            "mine.Norm is not what ",
        ),
        (
            "import mine\nmine.size[0] = 32\n" + comparison("{'f': torch.abs, 'plain': torch.abs}", "mine.make"),
            "import torch\nsize = [8]\ndef make():\n    return torch.randn(size[0], 16)\n",
            "inputs() made fp32 [8, 16] here, but fp32 [32, 16] where gs.compare was called",
        ),
        (
            "torch.set_float32_matmul_precision('high')\n" + comparison("{'f': torch.abs, 'plain': torch.abs}"),
            "",
            "PyTorch's matmul precision is high here, and functions are measured with highest; set it back",
        ),
    ],
)
@pytest.mark.slow
def test_what_would_be_something_else_there_is_refused(tmp_path: Path, text: str, module: str, told: str) -> None:
    assert told in script(tmp_path, text, mine=module)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda: torch.backends.cuda.enable_flash_sdp(False), "flash attention"),
        (lambda: torch.backends.cuda.enable_mem_efficient_sdp(False), "memory-efficient attention"),
        (lambda: torch.backends.cuda.enable_math_sdp(False), "math attention"),
        (lambda: torch.backends.cuda.enable_cudnn_sdp(False), "cuDNN attention"),
        (lambda: torch.backends.mha.set_fastpath_enabled(False), "fast path of transformer layers"),
        (lambda: setattr(torch.backends.cudnn, "enabled", False), "cudnn.enabled"),
        (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cudnn.benchmark"),
        (lambda: setattr(torch.backends.cudnn, "deterministic", True), "cudnn.deterministic"),
        (lambda: torch.set_flush_denormal(True), "flushing of denormal numbers"),
        (lambda: torch.set_autocast_enabled("cpu", True), "autocast on CPUs"),
    ],
)
def test_settings_of_pytorch_are_compared(change: Callable[[], Any], name: str) -> None:
    with torch.backends.cudnn.flags(True, False, 10, False):
        usual = trial._settings()
        trial._refuse_settings(usual)
        try:
            change()
            with pytest.raises(
                BadInput, match=f"PyTorch's {name} is (True|False) here, and functions are measured with"
            ):
                trial._refuse_settings(usual)
        finally:
            for enable in ("flash", "mem_efficient", "math", "cudnn"):
                getattr(torch.backends.cuda, f"enable_{enable}_sdp")(True)
            torch.backends.mha.set_fastpath_enabled(True)
            torch.set_flush_denormal(False)
            torch.set_autocast_enabled("cpu", False)


def test_what_functions_set_themselves_is_no_constant(tmp_path: Path) -> None:
    """A counter, or what is kept, differs from process to process, and decides nothing."""
    module = ModuleType("counting")
    module.__file__ = str(tmp_path / "counting.py")
    code = (
        "calls, kept, few, start, SIZE, DONE = 0, {}, 2, 7.5, 4, False\ndef impl():\n    pass\n"
        "class A:\n    seen = 0\n"
        "def f():\n    global calls, impl, DONE\n    calls += few\n    DONE, impl, A.seen = True, f, A.seen + 1\n"
        "    return kept\n"
    )
    exec(code, vars(module))
    told = modules.tell({"counting": module}, ())
    assert set(told["counting"]) == {"file", "few", "SIZE", "A", "f"}
    vars(module)["f"]()
    assert modules.tell({"counting": module}, ()) == told


def test_what_makes_other_sizes_is_not_measured() -> None:
    form = Form({"x": Tensor((4, 8), "fp32")}, Tensor((4, 8), "fp32"))
    with pytest.raises(BadInput, match=r"inputs\(\) made fp32 \[4, 6\] here, but fp32 \[4, 8\] where gs.compare"):
        drawn_as(lambda: torch.randn(4, 6), form, 1)
    with pytest.raises(BadInput, match=r"an input has dtype torch.float64"):
        drawn_as(lambda: torch.randn(4, 8).double(), form, 1)
    case = Functions(form, Given(lambda: torch.randn(4, 8, dtype=torch.bfloat16), abs)).all_cases()[0]
    with pytest.raises(BadInput, match=r"made bf16 \[4, 8\]"):
        case.inputs(1, "cpu")


KERNEL = """
import sys, linecache
import triton, triton.language as tl
cell = '''
@triton.jit
def helper(x):
    return x + 1.0

@triton.autotune(configs=[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], key=['n'])
@triton.jit(do_not_specialize=['n'])
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, helper(tl.load(x_ptr + i, mask=i < n)), mask=i < n)

def mine(x):
    return kernel, x
'''
name = '<ipython-input-7-abc>'  # as a notebook has it
linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
exec(compile(cell, name, 'exec'))
from pathlib import Path
from groundspeed.suites.functions import sent
from groundspeed.suites.functions.form import Form, Tensor
from groundspeed.suites.functions.suite import Given
sent.write(Path(sys.argv[1]), {'mine': mine}, Given(abs, abs), Form({'x': Tensor((4,), 'fp32')}, Tensor((4,), 'fp32')))
"""
READ = """
import sys, torch
from pathlib import Path
from groundspeed.lab.standin import StandIn, set_driver
from groundspeed.suites.functions import sent
kernel, _ = sent.read(Path(sys.argv[1]) / '0.pickle')(None)
set_driver(StandIn(90))
x = torch.zeros(4)
print(len(kernel.configs), kernel.fn.do_not_specialize)
print('ptx' in kernel.fn.warmup(x, x, 4, BLOCK=64, grid=(1,)).asm)
"""


@pytest.mark.slow
def test_a_kernel_of_triton_from_a_notebook_is_compiled_there(tmp_path: Path) -> None:
    for code, told in ((KERNEL, ""), (READ, "2 ['n']\nTrue\n")):
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.stdout == told, done.stderr


def _plain(x: Any) -> Any:
    return (x * 2).sin()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("asked", [{"backend": "eager"}, {"mode": "max-autotune-no-cudagraphs"}])
def test_what_torch_compile_made_goes_with_its_backend_and_options(asked: dict[str, Any]) -> None:
    import pickle

    function = torch.compile(lambda x: _plain(x), **asked)
    again = pickle.loads(sent._pickled("mine", function))
    assert again._is_torch_compile if hasattr(function, "_is_torch_compile") else True
    if "backend" in asked:
        x = torch.randn(5)
        assert torch.equal(again(x), _plain(x))

    def options(compiled: Any) -> Any:
        backend = sent._compiler_of(compiled, "mine").callback
        while hasattr(backend, "_torchdynamo_orig_backend"):
            backend = backend._torchdynamo_orig_backend
        return getattr(backend, "config", None), getattr(backend, "compiler_name", None)

    assert options(again) == options(function)


@pytest.mark.parametrize("module", [torch.backends.cudnn, torch.ops, torch.ops.aten], ids=str)
def test_a_module_of_a_class_of_its_own_is_sent_by_its_name(module: Any) -> None:
    import pickle

    assert pickle.loads(sent._pickled("mine", lambda: module))() is module


def test_paths_and_cells_of_any_kind_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)  # type: ignore[arg-type]
    sys.path.append(tmp_path / "more")  # type: ignore[arg-type]
    monkeypatch.setitem(linecache.cache, "<cell>" * 100, (3, None, ["x\n"], "<cell>"))
    form = Form({"x": Tensor((4,), "fp32")}, Tensor((4,), "fp32"))
    sent.write(tmp_path, {"mine": abs}, Given(abs, abs), form)
    about = json.loads((tmp_path / sent.ABOUT).read_text())
    assert str(tmp_path / "more") in about["path"]
    assert about["lines"]["<cell>" * 100] == ["x\n"]


def test_the_reference_of_a_module_is_sent_in_its_own_dtype() -> None:
    import pickle

    net = torch.nn.Linear(64, 64).to(torch.bfloat16)
    for function in (net, torch.compile(net, backend="eager")):
        reference = functions_._in_fp64(function)
        x = torch.randn(4, 64, dtype=torch.float64)
        assert reference(x).dtype == torch.float64
        assert net.weight.dtype == torch.bfloat16
        content = sent._pickled("mine", reference)
        assert len(content) < 3 * 64 * 65
        again = pickle.loads(content)
        assert torch.equal(again(x), reference(x))
        assert again.copied is again.module
        reference.forget()
        assert reference.copied is None


def test_a_library_that_pip_put_into_a_folder_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("theirs/__init__.py", "theirs/part.py", "alone.py", "mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    (tmp_path / "theirs-1.0.dist-info" / "RECORD").write_text(
        "theirs/__init__.py,sha256=,0\ntheirs/part.py,,\nalone.py,,\n"
    )
    monkeypatch.syspath_prepend(tmp_path)  # type: ignore[arg-type]
    found = {name: importlib.import_module(name) for name in ("theirs", "theirs.part", "alone", "mine")}
    try:
        assert [name for name, module in found.items() if sent.is_somebodys(name, module)] == ["mine"]
    finally:
        for name in found:
            del sys.modules[name]


@pytest.mark.slow
def test_weights_that_a_module_draws_are_named(tmp_path: Path) -> None:
    """Each import draws others: those of the reference are not those of who is timed."""
    text = "import mine\n" + comparison("{'f': lambda x: mine.f(x), 'plain': mine.f}")
    told = script(
        tmp_path, text, mine="import torch\nW = torch.randn(16, 16)\ndef f(x):\n    return x @ W.to(x.dtype)\n"
    )
    assert told.startswith("plain is right here, and not in a fresh process (rms_rel error")
    assert "a module may draw its weights when it is imported; seed them there, or draw them in the script" in told


@pytest.mark.slow
def test_a_module_that_changes_settings_is_named(tmp_path: Path) -> None:
    """Here it was set back, say."""
    text = "import mine\ntorch.use_deterministic_algorithms(False)\n" + comparison("{'f': mine.f, 'plain': mine.f}")
    module = "import torch\ntorch.use_deterministic_algorithms(True)\ndef f(x):\n    return x + 1\n"
    assert "a module that is imported with the functions sets PyTorch's deterministic mode; remove" in script(
        tmp_path, text, mine=module
    )


def test_under_o_nothing_is_measured(tmp_path: Path) -> None:
    code = (
        "from groundspeed.lab import trial\nfrom groundspeed.errors import BadInput\nfrom pathlib import Path\n"
        "try:\n    trial.try_reading(Path(), {}, (), '')\nexcept BadInput as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "Python runs with -O, and functions are measured without it; start Python without -O\n", (
        done.stderr
    )


@pytest.mark.parametrize("place", ["mkdtemp", "write"])
def test_a_full_folder_for_temporary_files_is_named(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(*((tempfile, "mkdtemp") if place == "mkdtemp" else (sent, "write")), full)
    with pytest.raises(GroundspeedError, match=rf"cannot write the functions to {tmp_path}.*: No space left.*TMPDIR"):
        gs.compare({"f": torch.abs, "g": torch.abs}, inputs=lambda: torch.randn(4, 6), baseline="g")
    assert not [*tmp_path.glob("groundspeed-*")]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "kept there: make room, then continue with --resume /a b/c",
            "kept there: make room, then call gs.compare again",
        ),
        ("choose another folder with --out", "choose another folder with out="),
        ("--calibration x: it is of no use", "calibration='x': it is of no use"),
        ("take --processes 2 or more", "take processes=2 or more"),
    ],
)
def test_flags_are_arguments_in_python(said: str, told: str) -> None:
    assert in_python(said) == told


def test_what_cannot_be_kept_of_it_is_told() -> None:
    function = torch.compile(lambda x: x, dynamic=True, backend="eager")
    with pytest.raises(sent.CannotSend, match="give a function that compiles it in its first call"):
        sent._pickled("mine", function)


@pytest.mark.slow
def test_a_module_has_its_parameters_in_fp64_where_it_says_what_is_right(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU())
    weight, bias = net[0].weight.detach(), net[0].bias.detach()
    functions = {"net": net, "written-out": lambda x: torch.nn.functional.gelu(x @ weight.T + bias)}
    run = gs.compare(
        functions, inputs=lambda: torch.randn(8, 16), baseline="net", preset="quick", processes=1, out=tmp_path
    )
    assert (run["net"].status, run["written-out"].status) == ("PASSED", "PASSED")


@pytest.mark.slow
def test_many_inputs_and_short_rows(tmp_path: Path) -> None:
    """Nine inputs have more combinations than can be listed; a mean has rows of one number, some of them near zero."""

    def mean(*x: torch.Tensor) -> torch.Tensor:
        return sum(x).mean(-1, keepdim=True)  # type: ignore[union-attr]

    def by_sum(*x: torch.Tensor) -> torch.Tensor:
        return sum(one.sum(-1, keepdim=True) for one in x) / 64  # type: ignore[return-value]

    run = gs.compare(
        {"mean": mean, "by-sum": by_sum},
        inputs=lambda: tuple(torch.randn(2000, 64) for _ in range(9)),
        baseline="mean",
        preset="quick",
        processes=1,
        out=tmp_path,
    )
    assert run["by-sum"].status == "PASSED", run["by-sum"].reason
