"""What passes over a model's file cost on this machine, and how fast that makes it.

All of it is read from what was measured and learned before: nothing is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.catalogue.fit import judge, need_of_size
from specchat.gguf.draft_kinds import KINDS
from specchat.gguf.header import Header
from specchat.passes.learned_cache import LearnedCache, LearnedPair, file_key
from specchat.passes.pass_costs import PLAIN, SHOWN, PassCosts, Stair, usual_stair
from specchat.planning.device import Machine
from specchat.wording import rate_text


@dataclass(frozen=True, slots=True)
class KnownSpeed:
    """What passes over a target's file cost, relative to one over one token, and its speed.

    Unless they were measured (`is_measured`), the costs are those that are usual for such a file,
    and no speed is known. `way` says how the target was loaded when they were. The rates are
    predicted from the passes, in an empty context, in tokens per second: plain decoding, and with
    drafts like the last ones, 0.0 where few of those are known.
    """

    stair: Stair
    is_measured: bool = False
    way: str = ""
    plain_rate: float = 0.0
    drafted_rate: float = 0.0

    @property
    def stair_text(self) -> str:
        """The costs in words."""
        lengths = [length for length in self.stair if length > 1]
        shown = f"{', '.join(map(str, lengths))} tokens"
        costs = ", ".join(f"{self.stair[length]:.1f}" for length in lengths)
        if not self.is_measured:
            return f"{shown} usually cost {costs} times one token; not measured yet"
        return f"{shown} cost {costs} times one token ({self.way})"

    @property
    def speed_text(self) -> str:
        """The predicted speed in words; empty if it is not known."""
        if not self.is_measured:
            return ""
        if not self.drafted_rate:
            return f"predicted {rate_text(self.plain_rate)}"
        if self.drafted_rate <= self.plain_rate:
            return f"predicted {rate_text(self.plain_rate)}; drafts do not pay"
        rates = rate_text(self.plain_rate), rate_text(self.drafted_rate)
        return f"predicted {rates[0]}, {rates[1]} with drafts"


def known_speed(machine: Machine, target: Header, draft: Path | None = None) -> KnownSpeed:
    """Return what is known of a target with a draft; without one, with what drafted for it last."""
    learned = _measured(target.path)
    if draft:
        own = [pair for pair in learned if pair.draft == file_key(draft)]
    else:
        own = [pair for pair in learned if _drafted_gain(pair)]
    return _speed(target, learned, own, machine)


def _measured(target: Path) -> list[LearnedPair]:
    """Return what was learned of pairs whose target's passes were measured, the latest first."""
    pairs = LearnedCache(target).pairs()
    return [pair for pair in pairs if _costs_of(pair).is_known]


def _costs_of(pair: LearnedPair) -> PassCosts:
    costs = PassCosts(max(SHOWN))
    costs.learn_record(pair.target)
    return costs


def _speed(
    header: Header, learned: Sequence[LearnedPair], own: Sequence[LearnedPair], machine: Machine
) -> KnownSpeed:
    """Return the costs that were learned first in a list, and the speed with the first `own`."""
    if not learned:
        fit = judge(need_of_size(header.file_bytes), machine)
        usual = usual_stair(
            header.quantisation,
            is_on_gpu="GPU" in fit,
            is_repacked=machine.repacks_weights,
            active_share=header.active_share,
        )
        return KnownSpeed(_rounded(PassCosts(max(SHOWN), usual)))
    pair = own[0] if own else learned[0]
    costs = _costs_of(pair)
    plain = 1.0 / costs.seconds(PLAIN, 0)
    drafted = plain * _drafted_gain(pair) if own else 0.0
    return KnownSpeed(
        _rounded(costs), is_measured=True, way=pair.way, plain_rate=plain, drafted_rate=drafted
    )


def _rounded(costs: PassCosts) -> Stair:
    return {length: round(cost, 3) for length, cost in costs.stair().items()}


def _drafted_gain(pair: LearnedPair) -> float:
    """Return how many times as fast as plain decoding a pair's last drafts promise to be.

    They are those at the temperature, 0 or above it, that most are known of; 0.0 if few are known.
    """
    if not pair.recent:
        return 0.0
    from specchat.pacing.knowledge import Knowledge  # it loads NumPy, which takes time
    from specchat.pacing.way_choice import FEW_DRAFTS, WayChoice

    known = {
        name: len(drafts)
        for name, drafts in pair.recent.items()
        if len(drafts) >= FEW_DRAFTS and name.partition(" ")[0] in pair.drafts
    }
    if not known:
        return 0.0
    name = max(known, key=known.__getitem__)
    knowledge, kind = Knowledge(pair), KINDS.get(pair.draft_kind)
    if kind:
        knowledge.drafts_blocks = kind.drafts_blocks
        knowledge.reads_accepted = kind.rereads_accepted
    if knowledge.drafts_blocks:
        knowledge.longest = max(len(draft[0]) for draft in pair.recent[name] if draft)
    choice = WayChoice(knowledge, name, name.partition(" ")[0])
    choice.begin_answer(0)
    return choice.gain
