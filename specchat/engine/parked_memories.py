"""Texts set aside: copies of a pair's memory, so that a text is not read twice.

Before a prompt is read, the copy that shares most of it is restored, and the previous content of
the memory is set aside if it is worth it. All copies together take a limited amount of the host's
memory, together with the saved states of the present text. To make room, copies first lose most of
their states; then the one that was used least recently goes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from time import time

from specchat.decoding.ports import Drafter
from specchat.engine.loaded_pair import LoadedPair
from specchat.engine.memory_files import LEAST_TOKENS, MemoryFiles, StoredMemory
from specchat.engine.text_place import TextPlace
from specchat.errors import EngineFailed
from specchat.llama.memory_snapshot import Checkpoint, MemorySnapshot
from specchat.llama.text_memory import TextMemory, count_common
from specchat.planning.host_resources import available_bytes
from specchat.planning.text_copies import LEAST_STATES, room_for_states

LEAST_LOST = 256
"""A text is set aside if this many of its tokens would be lost."""
LEAST_SHARED = 64
"""A text begins with a copy of another one if that saves reading this many tokens, and enough of
those that are copied: other texts wait for a copy, which is always whole."""
COPIED_ON_CPU, COPIED_ON_GPU = 256, 16
"""At least as many tokens are copied in the time of reading one. SmolLM2-135M on a CPU copied 900;
GPUs read much faster, and the copy is one to the host's memory and back."""
SPARE_SHARE = 0.5
"""One copy takes at most this share of what is free."""


@dataclass(slots=True)
class ParkedMemory:
    """A text set aside: the memories of the target and the draft, and the drafters that know it.

    The drafters are those of a `place`, and of no use in another one. Once the text is restored,
    the copy is kept if `least_lost` of its tokens are not wanted then.
    """

    target: MemorySnapshot
    draft: MemorySnapshot | None
    drafters: Mapping[str, Drafter]
    least_lost: int
    place: int = -1
    used: float = field(default_factory=time)

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return sum(snapshot.num_bytes for snapshot in self.snapshots)

    @property
    def snapshots(self) -> Sequence[MemorySnapshot]:
        """The memories of the models."""
        return [self.target, self.draft] if self.draft else [self.target]

    @property
    def is_thin(self) -> bool:
        """Whether it has as few states as a copy keeps."""
        return all(len(snapshot.checkpoints) <= LEAST_STATES for snapshot in self.snapshots)

    def thin(self) -> None:
        """Drop all but a few states."""
        self.target = self.target.thinned(LEAST_STATES)
        self.draft = self.draft.thinned(LEAST_STATES) if self.draft else None


class ParkedMemories:
    """The texts that a pair set aside, within a limit of bytes; 0 sets nothing aside."""

    def __init__(
        self, pair: LoadedPair, places: Sequence[TextPlace], limit: int, disk_limit: int = 0
    ) -> None:
        """Begin with no copies, and divide the room for states among the models.

        Texts are also kept on disk, in `disk_limit` bytes; 0 keeps none.
        """
        self.limit = limit
        self._pair, self._places = pair, places
        self._parked: list[ParkedMemory] = []
        self._files = MemoryFiles(pair, disk_limit) if disk_limit else None
        saving = [kind for kind in pair.rollback_kinds if kind.saves_states]
        for kind in saving:
            kind.room = room_for_states(limit, len(saving))

    @property
    def takes_turns(self) -> bool:
        """Whether an interrupted text continues with the same bits."""
        return bool(self.limit) and self._pair.context.rollback_kind.restores_bits

    @property
    def num_bytes(self) -> int:
        """The memory that all copies take."""
        return self._bytes_with(())

    def __len__(self) -> int:
        return len(self._parked)

    def switch(self, place: TextPlace, tokens: Sequence[int], *, repeats: bool = False) -> None:
        """Prepare a place for a text: with a copy, and its drafters, where that saves more.

        What another place has of it is left to `share`; less of it is used if the text `repeats`.
        If the answer there is unfinished it may continue later, and then none of it may be read
        again, as other passes may round differently.
        """
        context = place.context
        place.begin(time())
        if self._files:
            self._take_from_disk(self._files, tokens)
        if not (self.limit or self._parked):
            return
        num_kept = context.reachable(tokens)
        best = max(self._parked, key=lambda parked: self._saves(parked, tokens), default=None)
        num_lost = context.num_evaluated - num_kept
        least_lost = 1 if place.is_unfinished else LEAST_LOST
        num_beside, _ = self._best_beside(place, tokens, num_kept, repeats=repeats)
        num_saved = max(num_kept, num_beside)
        if best is None or self._saves(best, tokens) <= num_saved:
            if num_lost >= least_lost:
                self._park(place, {}, least_lost)
                self._make_room(place, num_kept)
            return
        if best.target.length - self._saves(best, tokens) < best.least_lost:
            self._parked.remove(best)
        if context.num_evaluated:
            self._park(place, place.drafters, least_lost)
        is_restored = self._restore(place, best)
        self._make_room(place, context.num_evaluated)
        is_at_home = is_restored and best.place == place.number
        place.use(best.drafters if is_at_home else {})

    def share(self, place: TextPlace, tokens: Sequence[int], *, repeats: bool) -> None:
        """Fill a place with the text of another one, if that has much more of a text's beginning.

        The other text stays as it is. The copy is one as texts are set aside in: llama.cpp's own
        between sequences is made with the next pass, over whatever was restored or before what is
        saved until then. If the text `repeats` or is exact, its memory must have the bits that it
        has alone.
        """
        read, context = tokens[:-1], place.context
        num_shared, other = self._best_beside(place, read, context.reachable(read), repeats=repeats)
        if other is None:
            return
        try:
            of_target = other.context.snapshot()
            of_draft = other.draft.snapshot() if other.draft else None
        except MemoryError:
            return
        with suppress(EngineFailed):  # it is empty then
            context.restore(of_target)
            if place.draft and of_draft:
                place.draft.restore(of_draft)
        if repeats:  # what follows has other bits
            context.rollback(num_shared)

    def _best_beside(
        self, place: TextPlace, tokens: Sequence[int], num_kept: int, *, repeats: bool
    ) -> tuple[int, TextPlace | None]:
        """Return how much of a text's beginning another place has, and which has most.

        Those whose copy does not pay are left out, as the place itself has `num_kept` tokens.
        """
        others = [each for each in self._places if each is not place]
        shared = [(each.context.shared_by(tokens, repeats=repeats), each) for each in others]
        paying = [
            (count, each)
            for count, each in shared
            if pays_to_copy(each.context, count - num_kept, each.context.num_evaluated)
        ]
        return max(paying, key=lambda pair: pair[0], default=(0, None))

    def reachable(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of a text `switch` would save reading."""
        on_disk, _ = self._best_on_disk(self._files, tokens) if self._files else (0, None)
        return max(self._reachable_here(tokens), on_disk)

    def clear(self) -> None:
        """Forget every text, except those on disk."""
        self._parked.clear()

    def save(self, is_stopped: Callable[[], bool]) -> None:
        """Save long texts on disk, the present one first, until stopped or the disk is full."""
        files = self._files
        if files is None:
            return
        with suppress(OSError, MemoryError):
            for place in sorted(self._places, key=lambda place: -place.used):
                if place.context.num_evaluated >= LEAST_TOKENS and not is_stopped():
                    of_draft = place.draft.snapshot() if place.draft else None
                    files.save(place.context.snapshot(), of_draft, place.used, is_stopped)
            for parked in sorted(self._parked, key=lambda parked: -parked.used):
                if parked.target.length >= LEAST_TOKENS and not is_stopped():
                    files.save(
                        parked.target, parked.draft, parked.used, is_stopped, may_displace=False
                    )

    def _take_from_disk(self, files: MemoryFiles, tokens: Sequence[int]) -> None:
        """Load the file that saves the most, if it saves more than what is in memory."""
        _, stored = self._best_on_disk(files, tokens)
        if stored is not None and (snapshots := files.load(stored)) is not None:
            self._parked.append(ParkedMemory(*snapshots, {}, LEAST_LOST))

    def _best_on_disk(
        self, files: MemoryFiles, tokens: Sequence[int]
    ) -> tuple[int, StoredMemory | None]:
        """Return how much of a text a file saves reading, if that is worth loading it."""
        context = self._pair.context
        saved = [(context.reachable_in(file.outline, tokens), file) for file in files.stored]
        most, stored = max(saved, key=lambda pair: pair[0], default=(0, None))
        is_worth_it = most >= self._reachable_here(tokens) + LEAST_LOST
        return (most, stored) if is_worth_it else (0, None)

    def _reachable_here(self, tokens: Sequence[int]) -> int:
        """Return how much of a text is in a place, or in a copy."""
        held = [place.context.reachable(tokens) for place in self._places]
        return max([*held, *(self._saves(parked, tokens) for parked in self._parked)])

    def _saves(self, parked: ParkedMemory, tokens: Sequence[int]) -> int:
        """Return how many tokens of a text a copy saves reading."""
        return self._pair.context.reachable_in(parked.target, tokens)

    def _park(self, place: TextPlace, drafters: Mapping[str, Drafter], least_lost: int) -> None:
        """Set the present text of a place aside, replacing copies of its beginning."""
        context, draft = place.context, place.draft
        free = available_bytes()
        try:
            target = context.snapshot()
            of_draft = draft.snapshot() if draft else None
            parked = ParkedMemory(
                target, of_draft, drafters, least_lost, place.number, place.used_before
            )
        except MemoryError:
            return
        if free is not None and parked.num_bytes > SPARE_SHARE * free:
            return
        tokens = target.tokens
        self._parked = [
            other
            for other in self._parked
            if count_common(other.target.tokens, tokens) < other.target.length
        ]
        self._parked.append(parked)

    def _bytes_with(self, present: Iterable[Checkpoint]) -> int:
        """Return the memory of all copies and of present texts' states, which they may share."""
        snapshots = [snapshot for parked in self._parked for snapshot in parked.snapshots]
        states = [*chain.from_iterable(snapshot.checkpoints for snapshot in snapshots), *present]
        sizes = {id(state): state.num_bytes for state in states}
        return sum(snapshot.data.size for snapshot in snapshots) + sum(sizes.values())

    def _states(self, place: TextPlace, length: int) -> Iterator[Checkpoint]:
        """Yield the states of the present texts, those of a place up to a length."""
        for each in self._places:
            for kind in each.rollback_kinds:
                for state in kind.checkpoints:
                    if each is not place or state.length <= length:
                        yield state

    def _make_room(self, place: TextPlace, length: int) -> None:
        """Make room beside the states of a place's text, of which so many tokens will stay."""
        while self._parked and self._bytes_with(self._states(place, length)) > self.limit:
            least = min(self._parked, key=lambda parked: (parked.is_thin, parked.used))
            if least.is_thin:
                self._parked.remove(least)
            else:
                least.thin()

    def _restore(self, place: TextPlace, parked: ParkedMemory) -> bool:
        """Restore a copy; if llama.cpp refuses it, the memory is empty."""
        parked.used = time()
        draft = place.draft
        try:
            place.context.restore(parked.target)
            if draft and parked.draft:
                draft.restore(parked.draft)
        except EngineFailed:
            if parked in self._parked:
                self._parked.remove(parked)
            return False
        return True


def pays_to_copy(text: TextMemory, num_saved: int, num_copied: int) -> bool:
    """Whether so many tokens of a text are copied to another place if that saves reading some."""
    in_time_of_one = COPIED_ON_GPU if text.native.is_on_gpu else COPIED_ON_CPU
    return num_saved >= max(LEAST_SHARED, num_copied / in_time_of_one)
