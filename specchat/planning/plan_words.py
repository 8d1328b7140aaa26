"""What a plan says to the user: what is where, and what it gives up for memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.options.declarations import LoadOptions
from specchat.planning.context_shape import LONGEST_OF_STATES, USUAL_TYPE
from specchat.planning.device import Device
from specchat.planning.memory import Need, Sizes
from specchat.planning.placement import NOUNS, OnHost
from specchat.planning.plan import Plan

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class PlanWords:
    """Describes the plans of a pair on some devices, the `best` of which gives up nothing."""

    target: Sizes
    draft: Sizes | None
    options: LoadOptions
    host: Device
    gpus: Sequence[Device]
    best: Plan
    draft_is_remote: bool

    def summary(self, plan: Plan, needs: Sequence[Need]) -> str:
        """Return what is where in a plan that needs this memory."""
        parts = ["all on the CPU"]
        if plan.gpu_layers and self.gpus:
            target = _layers("target", self.target, plan.gpu_layers, self._gpus_name)
            parts = [target + _but_for(self.target, plan.on_host)]
            if self.draft and plan.draft_gpu_layers is not None:
                where = self._gpus_name if self.draft_is_remote else "GPU"
                name = "head" if self.draft.kind.is_head else "draft"
                parts.append(_layers(name, self.draft, plan.draft_gpu_layers, where))
        many = f" for each of {plan.num_texts} answers" if plan.num_texts > 1 else ""
        parts.append(f"context {plan.ctx}{many}")
        if plan.cache_type != USUAL_TYPE:
            parts.append(f"KV cache in {plan.cache_type}")
        host, *gpus = zip([self.host, *self.gpus], needs, strict=True)
        parts += [
            f"{gib(need.total, device.free)} {_place(device)}"
            for device, need in [*gpus, host]
            if need.total and device.total < UNLIMITED
        ]
        return ", ".join(parts)

    def notice(self, plan: Plan) -> str | None:
        """Return what a plan gives up for memory, None for nothing."""
        parts = []
        whole = self.target.num_layers + 1
        slow = []
        if self.gpus and self.options.gpu_layers is None and plan.gpu_layers < whole:
            slow.append(layers_on_cpu(plan, whole))
        if plan.on_host and self.options.on_cpu is None:
            slow.append(str(plan.on_host))
        if slow:
            runs = "runs" if slow == ["the target"] else "run"
            parts.append(f"{' and '.join(slow)} {runs} on the CPU, which is slower")
        if self.draft and plan.draft_gpu_layers is None:
            parts.append(f"the {self.draft.kind.noun} is not used")
        best = self.best
        if plan.rollback_length < best.rollback_length:
            longest = f"{plan.rollback_length} tokens instead of {LONGEST_OF_STATES}"
            parts.append(f"drafts have at most {longest}")
        if plan.num_texts < best.num_texts:
            parts.append(f"{plan.num_texts} instead of {best.num_texts} answers at once")
        if plan.ctx < best.ctx:
            parts.append(f"the context holds {plan.ctx} tokens instead of {best.ctx}")
        if plan.cache_type != best.cache_type:
            parts.append(f"the KV cache is stored as {plan.cache_type}")
        if not plan.is_repacked:
            parts.append("the weights are read from the disk repeatedly, which is slow")
        return "memory is short: " + ", ".join(parts) if parts else None

    @property
    def _gpus_name(self) -> str:
        """The name for the devices other than the CPU."""
        num_remote = sum(bool(gpu.worker) for gpu in self.gpus)
        if not num_remote:
            return "GPU"
        workers = "worker" if num_remote == 1 else "workers"
        return workers if num_remote == len(self.gpus) else f"GPU and {workers}"


def layers_on_cpu(plan: Plan, whole: int) -> str:
    """Return which of the target's layers are not on GPUs, in words; `whole` counts all."""
    layers = f"{whole - plan.gpu_layers} of {whole} layers of the target"
    return layers if plan.gpu_layers else "the target"


def gib(size: int, free: int | None = None) -> str:
    """Return a size in GiB, and of how many that are free."""
    of_free = "" if free is None else f" of {free / 2**30:.1f}"
    return f"{size / 2**30:.1f}{of_free} GiB"


def _layers(name: str, model: Sizes, count: int, device: str) -> str:
    whole = model.num_layers + 1
    if 0 < count < whole:
        return f"{count} of {whole} layers of the {name} on the {device}"
    return f"{name} on the {device if count else 'CPU'}"


def _but_for(model: Sizes, on_host: OnHost) -> str:
    """Return what of a model is not on its device, in words; empty for nothing."""
    if not on_host:
        return ""
    whole = len(model.blocks_with(on_host.part))
    some = f"{on_host.count} of {whole} blocks"
    blocks = some if on_host.num_blocks < whole else f"all {whole} blocks"
    return f" but for the {NOUNS[on_host.part]} of {blocks}"


def _place(device: Device) -> str:
    return "in RAM" if device.kind == "cpu" and not device.worker else f"on {device.short_label}"
