"""Building the function of a contender for a case, and guarding it against later replacement."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.measure.fault import Unsupported
from groundspeed.measure.guard import Guard

Function = Callable[..., Any]


@dataclass(frozen=True)
class Builder:
    suite: Any
    device: str
    guard: Guard

    def let_go(self, *, siblings: bool) -> None:
        """Release what was built for the last case. `siblings`: other workers share the device, and cannot have what
        this one's allocator keeps."""
        self.guard.let_go()
        gc.collect()
        gc.freeze()  # scanning what survives again before every case would take longer each time
        if siblings and self.device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def build(self, case: Case, contender: Contender) -> Function:
        theirs = self.suite.module.case_of_params(dict(case.params))  # a copy: the original is used to check them
        if reason := contender.supports(theirs, self.device):
            if not isinstance(reason, str):
                raise TypeError(f"supports() returned {reason!r}; it must return None or a string that says why not")
            raise Unsupported(reason)
        function = contender.build(theirs)
        self.guard.watch(f"the function of {contender.name}", function, of_case=True)
        return function

    def build_rivals(self, case: Case, contenders: Sequence[str], report: Callable[..., None]) -> dict[str, Function]:
        """If any contender is from `--with`, build the other contenders before that one is called: built later, they
        could not be guarded."""
        built: dict[str, Function] = {}
        for name in contenders if {*contenders} & {*self.suite.own} else ():
            if name not in self.suite.own:
                report("at", contender=name)
                try:
                    built[name] = self.build(case, self.suite.contenders[name])
                except BaseException:
                    continue  # it will fail again when its turn comes
                self.guard.renew()
        return built
