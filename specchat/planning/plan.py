"""Which layers go where, how long the context is, how its cache is kept: so that all of it fits.

A pure function of what the files say, what the devices have and what the user named. The draft
comes first: it is read once per drafted token, the target once per step, so a byte of GPU memory
brings most where the draft is in it (`Choices` has the arithmetic). Then, for the whole target on
GPUs, a shorter context and a cache in q8_0 are given up; if that does not do it, layers of the
target stay in the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specchat.errors import ModelWontLoad
from specchat.options import LONGEST_DRAFT, LoadOptions
from specchat.planning.choices import MOST, USUAL_TYPE, Choice, Choices
from specchat.planning.context_shape import ContextShape, shape_context
from specchat.planning.device import Device, gpus_of, host_of
from specchat.planning.memory import HOST, Need, Sizes, place

__all__ = ["Plan", "Planner"]

NEXT_SHARE = 0.85
"""What the next smaller plan may take of the memory of the one before."""
SMALLEST_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class Plan:
    """How a pair is loaded.

    `gpu_layers` counts the layers on GPUs, the output being one; `draft_gpu_layers` is None where
    there is no memory for the draft. `is_repacked` says whether weights on the CPU may be copied
    into a quicker form; else they stay in the file and need no memory of their own. `needs` is what
    each device gives, the host first. With `is_on_gpus` no layer is left to the CPU. `words` tell
    all that to the user, `given_up` what is less than wanted, in words too.
    """

    ctx: int
    key_type: str
    value_type: str
    gpu_layers: int
    draft_gpu_layers: int | None
    shares: tuple[float, ...]
    is_repacked: bool
    needs: tuple[Need, ...]
    is_on_gpus: bool = False
    words: str = ""
    given_up: str = ""


class Planner:
    """Plans for one pair on one machine."""

    def __init__(
        self, target: Sizes, draft: Sizes | None, devices: Sequence[Device], options: LoadOptions
    ) -> None:
        """Take the pair's sizes, the machine's devices and what the user named."""
        self._target, self._draft, self._options = target, draft, options
        self._host = host_of(devices)
        gpus = gpus_of(devices)
        is_split = options.split_mode != "none"
        self._gpus = gpus if is_split else gpus[options.main_gpu : options.main_gpu + 1]
        named = options.tensor_split[: len(self._gpus)] if len(self._gpus) > 1 else ()
        named += (0.0,) * (len(self._gpus) - len(named))
        self._shares = named if any(named) else tuple(float(gpu.free) for gpu in self._gpus)
        self._choices = Choices(target, draft, options, has_gpus=bool(self._gpus))
        self._is_shared = any(gpu.kind == "integrated" for gpu in self._gpus)

    def first(self) -> Plan:
        """Return the best plan that fits; ModelWontLoad says what would if there is none."""
        budgets = [self._host.budget, *(gpu.budget for gpu in self._gpus)]
        plan = self._best(budgets)
        if plan is None and self._options.gpu_layers is not None:
            plan = self._made(next(iter(self._choices)))  # it is what the user wants
        if plan is None:
            raise ModelWontLoad(self.what_would_fit())
        return plan

    def after(self, plan: Plan) -> Plan | None:
        """Return the next smaller plan, for a machine that had less memory than it said."""
        budgets = [self._host.budget, *(gpu.budget for gpu in self._gpus)]
        needs = [self._in_host(plan), *(need.total for need in plan.needs[1:])]
        smaller = [int(NEXT_SHARE * need) for need in needs]
        if any(smaller[1:]):  # a GPU had less; layers that leave it need the host's memory
            return self._best([budgets[HOST], *map(min, budgets[1:], smaller[1:])])
        return self._best([min(budgets[HOST], smaller[HOST]), *smaller[1:]])

    def what_would_fit(self) -> str:
        """Say in one line that the pair does not fit, and what would."""
        smallest = list(self._choices)[-1]
        shape = self._shape(self._target, smallest, is_draft=False)
        places = self._places(self._target, 0)
        (need,) = self._target.needs(shape, places)
        room = self._host.budget + sum(gpu.budget for gpu in self._gpus if not self._is_shared)
        left = room - need.cache - need.work
        name = self._target.header.path.name
        told = (
            f"{name} does not fit: with a context of {smallest.ctx} tokens it needs"
            f" {_gib(need.total)}, and {_gib(room)} are free; "
        )
        if left > need.weights // 8:
            return told + f"a quantisation of at most {left / 1e9:.1f} GB would fit"
        if need.weights < room and self._options.ctx > SMALLEST_CONTEXT:
            return told + "choose a shorter one with --ctx"
        return told + "close other programs, or choose a smaller model"

    def _best(self, budgets: Sequence[int]) -> Plan | None:
        """Return the first of the choices that fits into these budgets, the host's first."""
        for choice in self._choices:
            layers = self._most_layers(choice, budgets) if choice.gpu_layers == MOST else None
            if layers == 0:
                continue
            plan = self._made(choice if layers is None else replace(choice, gpu_layers=layers))
            if self._fits(plan, budgets):
                return plan
        return None

    def _shape(self, model: Sizes, choice: Choice, *, is_draft: bool) -> ContextShape:
        wanted = ContextShape(choice.ctx, choice.key_type, choice.value_type, self._options.batch)
        return shape_context(
            model.layout,
            wanted,
            flash_attention=self._options.flash_attention,
            rollback_length=0 if is_draft else LONGEST_DRAFT,
            is_on_gpu=bool(choice.draft_gpu_layers if is_draft else choice.gpu_layers),
        )

    def _places(self, model: Sizes, gpu_layers: int) -> tuple[int, ...]:
        return place(model.num_layers, gpu_layers if self._gpus else 0, self._shares)

    def _needs(self, choice: Choice) -> tuple[Need, ...]:
        """Return what the devices are to give for both models, the host first."""
        total = [Need()] * (1 + len(self._gpus))
        pairs = [(self._target, choice.gpu_layers, False)]
        if self._draft and choice.draft_gpu_layers is not None:
            pairs.append((self._draft, choice.draft_gpu_layers, True))
        for model, layers, is_draft in pairs:
            shape = self._shape(model, choice, is_draft=is_draft)
            for device, need in enumerate(model.needs(shape, self._places(model, layers))):
                total[device] += need
        return tuple(total)

    def _most_layers(self, choice: Choice, budgets: Sequence[int]) -> int:
        """Return how many of the target's layers fit onto the GPUs."""
        least, most = 0, self._target.num_layers + 1
        while least < most:
            middle = (least + most + 1) // 2
            needs = self._needs(replace(choice, gpu_layers=middle))
            if all(need.total <= room for need, room in zip(needs[1:], budgets[1:], strict=True)):
                least = middle
            else:
                most = middle - 1
        return least

    def _fits(self, plan: Plan, budgets: Sequence[int]) -> bool:
        needs = [self._in_host(plan), *(need.total for need in plan.needs[1:])]
        return all(need <= room for need, room in zip(needs, budgets, strict=True))

    def _in_host(self, plan: Plan) -> int:
        """Return what the host must give; weights that are only mapped can leave it again."""
        host = plan.needs[HOST]
        in_host = host.total if plan.is_repacked else host.total - host.weights
        return in_host + sum(need.total for need in plan.needs[1:] if self._is_shared)

    def _made(self, choice: Choice) -> Plan:
        """Return the plan of a choice, with its needs and its words."""
        needs = self._needs(choice)
        return Plan(
            ctx=choice.ctx,
            key_type=choice.key_type,
            value_type=choice.value_type,
            gpu_layers=choice.gpu_layers if self._gpus else 0,
            draft_gpu_layers=choice.draft_gpu_layers,
            shares=self._shares if len(self._gpus) > 1 else (),
            is_repacked=choice.is_repacked,
            needs=needs,
            is_on_gpus=self._is_on_gpus(choice),
            words=self._words(choice, needs),
            given_up=self._given_up(choice),
        )

    def _is_on_gpus(self, choice: Choice) -> bool:
        models = [(self._target, choice.gpu_layers)]
        if self._draft and choice.draft_gpu_layers is not None:
            models.append((self._draft, choice.draft_gpu_layers))
        return bool(self._gpus) and all(count > model.num_layers for model, count in models)

    def _words(self, choice: Choice, needs: Sequence[Need]) -> str:
        """Tell a plan in one line."""
        parts = [f"context {choice.ctx}"]
        if choice.key_type != USUAL_TYPE or choice.value_type != USUAL_TYPE:
            kinds = dict.fromkeys((choice.key_type, choice.value_type))
            parts.append(f"cache in {' and '.join(kinds)}")
        if choice.gpu_layers and self._gpus:
            parts.insert(0, _layers("target", choice.gpu_layers, self._target))
            if self._draft and choice.draft_gpu_layers is not None:
                parts.insert(1, _layers("draft", choice.draft_gpu_layers, self._draft))
        else:
            parts.insert(0, "all on the CPU")
        devices = [self._host, *self._gpus]
        parts += [
            f"{_gib(need.total)} of {_gib(device.free)} on {device.name}"
            for device, need in zip(devices, needs, strict=True)
            if need.total and device.total < 2**62
        ]
        return ", ".join(parts)

    def _given_up(self, choice: Choice) -> str:
        """Tell what is less than it would be with more memory; "" where nothing is."""
        parts = []
        options, whole = self._options, self._target.num_layers + 1
        if self._gpus and options.gpu_layers is None and choice.gpu_layers < whole:
            on_host = f"{whole - choice.gpu_layers} of {whole} layers of the target run"
            runs = on_host if choice.gpu_layers else "the target runs"
            parts.append(f"{runs} on the CPU, slower")
        if self._draft and choice.draft_gpu_layers is None:
            parts.append("the draft model is left out")
        if choice.ctx < self._choices.contexts[0]:
            parts.append(
                f"the context holds {choice.ctx} tokens instead of {self._choices.contexts[0]}"
            )
        if (choice.key_type, choice.value_type) != self._choices.types[0]:
            parts.append(f"the cache is kept in {choice.key_type}")
        if not choice.is_repacked:
            parts.append("the weights are read from the disk again and again, which is slow")
        return "memory is short: " + ", ".join(parts) if parts else ""


def _layers(name: str, count: int, model: Sizes) -> str:
    whole = model.num_layers + 1
    if count >= whole:
        return f"{name} on the GPU"
    if not count:
        return f"{name} on the CPU"
    return f"{count} of {whole} layers of the {name} on the GPU"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
